// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/message_error.h"

#include <utility>
#include <vector>

#include "gateway/openai/field_reader.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// The code and the type that a client sees.
std::pair<int, std::string> Seen(int http_code, const std::string& code = "") {
  const ApiError error{.http_code = http_code, .message = "m", .code = code};
  return {MessageErrorCode(error), Json::parse(MessageErrorBody(error, "r"))["error"]["type"]};
}

TEST(MessageErrorTest, AnErrorHasTheFormOfAnthropic) {
  EXPECT_EQ(MessageErrorBody({.http_code = 400, .message = "max_tokens is missing", .param = "max_tokens"}, "req-1"),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"max_tokens is missing"},)"
            R"("request_id":"req-1"})");
  EXPECT_TRUE(Json::parse(MessageErrorBody({.message = "m"}, ""))["request_id"].is_null());
}

TEST(MessageErrorTest, EachCodeHasItsType) {
  const std::vector<std::pair<int, std::string>> types = {{400, "invalid_request_error"},
                                                          {401, "authentication_error"},
                                                          {403, "permission_error"},
                                                          {404, "not_found_error"},
                                                          {405, "invalid_request_error"},
                                                          {408, "invalid_request_error"},
                                                          {413, "request_too_large"},
                                                          {429, "rate_limit_error"},
                                                          {500, "api_error"},
                                                          {501, "api_error"},
                                                          {504, "timeout_error"}};
  for (const auto& type : types) EXPECT_EQ(Seen(type.first), type);
}

TEST(MessageErrorTest, AServerWithoutRoomIsOverloaded) {
  const std::pair<int, std::string> overloaded(529, "overloaded_error");
  EXPECT_EQ(Seen(503), overloaded);
  EXPECT_EQ(Seen(503, "no_manager"), overloaded);
  for (const char* code : {"queue_full", "too_many_requests", "overloaded"}) EXPECT_EQ(Seen(429, code), overloaded);
  const std::pair<int, std::string> limited(429, "rate_limit_error");
  for (const char* code : {"tenant_limit", "answer_memory_full"}) EXPECT_EQ(Seen(429, code), limited);
}

TEST(MessageErrorTest, APromptThatIsTooLongIsCalledSo) {
  const ApiError error{.message = "messages has 9 tokens, the model's context is 8", .code = "context_length_exceeded"};
  EXPECT_EQ(Json::parse(MessageErrorBody(error, "r"))["error"]["message"],
            "prompt is too long: messages has 9 tokens, the model's context is 8");
}

TEST(MessageErrorTest, ThePathDecidesAboutTheForm) {
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches/x"}) {
    EXPECT_TRUE(IsMessagePath(path)) << path;
  }
  for (const char* path : {"/v1/messages2", "/v1/chat/completions", "/", ""}) EXPECT_FALSE(IsMessagePath(path)) << path;
}

}  // namespace
}  // namespace quire
