// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/logprob_limit.h"

#include "gtest/gtest.h"
#include "tests/gateway/openai/read_call.h"

namespace quire {
namespace {

constexpr uint32_t kContext = 1000;

TEST(LogprobLimitTest, PromptsChoicesTokensAndAlternativesCount) {
  const auto expected = [](const std::string& body) { return ExpectedLogprobs(Completion(body), kContext); };
  EXPECT_EQ(expected(R"({"prompt": [1, 2, 3], "max_tokens": 10})"), 0u);
  EXPECT_EQ(expected(R"({"prompt": [1, 2, 3], "max_tokens": 10, "logprobs": 4})"), 50u);
  EXPECT_EQ(expected(R"({"prompt": [1, 2, 3], "max_tokens": 10, "logprobs": 4, "n": 2})"), 100u);
  EXPECT_EQ(expected(R"({"prompt": [1, 2, 3], "max_tokens": 10, "logprobs": 4, "stream": true})"), 0u);
  EXPECT_EQ(expected(R"({"prompt": [1, 2, 3], "max_tokens": 4000000000, "logprobs": 0})"), kContext);
  EXPECT_EQ(expected(R"({"prompt": [1, 2, 3], "max_tokens": 0, "echo": true, "logprobs": 4})"), 15u);
  EXPECT_EQ(expected(R"({"prompt": [[1, 2, 3], [4]], "max_tokens": 0, "echo": true, "logprobs": 4,
                         "prompt_logprobs": 1, "n": 3})"),
            4u * 2 * 6);
  EXPECT_EQ(expected(R"({"prompt": [1, 2, 3], "max_tokens": 1, "prompt_logprobs": 1, "stream": true})"), 6u);
  EXPECT_EQ(expected(R"({"prompt": "a b c", "max_tokens": 1, "prompt_logprobs": 1})"), 2u);
}

TEST(LogprobLimitTest, AChatWithoutMaxTokensHasRoomForItsLogprobs) {
  const GenerateCall call = Chat(R"({"messages": [], "logprobs": true, "top_logprobs": 4, "n": 2})");
  EXPECT_EQ(RoomForLogprobs(call, 100, 1000), 100u);
  EXPECT_EQ(RoomForLogprobs(call, 101, 1000), 100u);
  EXPECT_EQ(RoomForLogprobs(call, 100, 5), 1u);
  EXPECT_EQ(RoomForLogprobs(Chat(R"({"messages": []})"), 100, 5), 100u);
}

TEST(LogprobLimitTest, TheErrorNamesFieldValueAndLimit) {
  const GenerateCall call = Completion(R"({"prompt": [[1, 2], [3]], "max_tokens": 5, "logprobs": 3, "n": 2})");
  const ApiError error = TooManyLogprobs(call, ExpectedLogprobs(call, kContext), 79);
  EXPECT_EQ(error.message,
            "logprobs is 3, and with 2 prompts and n 2 the answer has at least 80 logprobs; at most 79 are allowed "
            "(--max-answer-logprobs)");
  EXPECT_EQ(error.param, "logprobs");
  EXPECT_EQ(error.http_code, 400);
  EXPECT_EQ(TooManyLogprobs(Chat(R"({"messages": [], "prompt_logprobs": 2})"), 8, 7).param, "prompt_logprobs");
  EXPECT_EQ(TooManyLogprobs(Chat(R"({"messages": [], "logprobs": true, "top_logprobs": 2})"), 8, 7).param,
            "top_logprobs");
}

}  // namespace
}  // namespace quire
