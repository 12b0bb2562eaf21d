// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/text_logprobs.h"

#include <string>
#include <vector>

#include "gateway/openai/field_reader.h"
#include "gmock/gmock.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TextLogprobs Of(const std::vector<std::string>& tokens) {
  LogprobList positions;
  for (const std::string& token : tokens) positions.Add()->mutable_chosen()->set_token(token);
  TextLogprobs logprobs;
  logprobs.Add(positions, TokenName::kText);
  return logprobs;
}

std::vector<std::string> Tokens(TextLogprobs logprobs) {
  std::vector<std::string> tokens;
  for (const Json& entry : Json::parse("[" + logprobs.Take() + "]")) tokens.push_back(entry["token"]);
  return tokens;
}

TEST(TextLogprobsTest, ATextTakesAllTokensOnce) {
  TextLogprobs logprobs = Of({"a", "b"});
  EXPECT_FALSE(logprobs.empty());
  EXPECT_THAT(Tokens(logprobs), ElementsAre("a", "b"));
  logprobs.Take();
  EXPECT_TRUE(logprobs.empty());
  EXPECT_EQ(logprobs.Take(), "");
}

TEST(TextLogprobsTest, TagsAndSpaceBeforeATextAreDropped) {
  TextLogprobs logprobs = Of({"</", "think>", "\n\n", "Hello", " you"});
  logprobs.DropBefore("Hello you");
  EXPECT_THAT(Tokens(logprobs), ElementsAre("Hello", " you"));
  TextLogprobs longer = Of({"</think>", "Hello"});
  longer.DropBefore("Hel");
  EXPECT_THAT(Tokens(longer), ElementsAre("Hello")) << "the end of the token is kept back";
  TextLogprobs none = Of({"</think>"});
  none.DropBefore("Hello");
  EXPECT_THAT(Tokens(none), IsEmpty());
}

}  // namespace
}  // namespace quire
