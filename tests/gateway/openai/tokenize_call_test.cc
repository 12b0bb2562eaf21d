// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/tokenize_call.h"

#include <string>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

TokenizeCall Tokenize(const std::string& body) {
  return std::get<TokenizeCall>(ReadTokenizeCall(*ParseBody(body)));
}

std::string TokenizeError(const std::string& body) {
  return std::get<ApiError>(ReadTokenizeCall(*ParseBody(body))).message;
}

TEST(TokenizeCallTest, ATextIsTokenizedAsItIsAsked) {
  const TokenizeCall call = Tokenize(R"({"model": "m", "prompt": "x", "add_special_tokens": false})");
  EXPECT_EQ(call.model, "m");
  EXPECT_FALSE(call.returns_strings);
  const auto& request = std::get<v1::TokenizeRequest>(call.prompt);
  EXPECT_EQ(request.text(), "x");
  EXPECT_TRUE(request.has_add_special_tokens() && !request.add_special_tokens());
}

TEST(TokenizeCallTest, AConversationIsRendered) {
  const TokenizeCall call =
      Tokenize(R"({"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": false})");
  const auto& chat = std::get<v1::Chat>(call.prompt);
  EXPECT_EQ(chat.messages(0).content(), "x");
  EXPECT_TRUE(chat.has_add_generation_prompt());
}

TEST(TokenizeCallTest, WrongFieldsAreRefused) {
  EXPECT_EQ(TokenizeError("{}"), "prompt is missing");
  EXPECT_EQ(TokenizeError(R"({"prompt": "x", "messages": []})"),
            "prompt is not supported: the request has messages already");
  EXPECT_EQ(TokenizeError(R"({"messages": [], "add_special_tokens": true})"),
            "add_special_tokens is true, but the chat template writes these tokens");
  EXPECT_EQ(TokenizeError(R"({"prompt": "x", "y": 1})"), "y is not known to this server");
  EXPECT_EQ(std::get<ApiError>(ReadDetokenizeCall(*ParseBody("{}"))).message, "tokens is missing");
}

TEST(TokenizeCallTest, TheAnswerHasTheShapeOfVllm) {
  v1::TokenizeResponse response;
  response.add_token_ids(3);
  response.add_pieces("x");
  TokenizeCall call;
  EXPECT_EQ(TokenizeBody(call, response, 64), R"({"count":1,"max_model_len":64,"tokens":[3],"token_strs":null})");
  call.returns_strings = true;
  EXPECT_EQ(TokenizeBody(call, response, 64), R"({"count":1,"max_model_len":64,"tokens":[3],"token_strs":["x"]})");
}

TEST(DetokenizeCallTest, SpecialTokensAreShown) {
  const auto call = std::get<DetokenizeCall>(ReadDetokenizeCall(*ParseBody(R"({"tokens": [1, 2]})")));
  EXPECT_THAT(call.request.token_ids(), ElementsAre(1, 2));
  EXPECT_TRUE(call.request.has_skip_special_tokens() && !call.request.skip_special_tokens());
  v1::DetokenizeResponse response;
  response.set_text("a\"b");
  EXPECT_EQ(DetokenizeBody(response), R"({"prompt":"a\"b"})");
}

}  // namespace
}  // namespace quire
