// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/message_call.h"

#include "gmock/gmock.h"
#include "tests/gateway/anthropic/read_message.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MessageCallTest, FieldsBecomeThoseOfTheManager) {
  const GenerateCall call = ReadMessage(R"("model": "tales", "temperature": 0.5, "top_p": 0.25, "top_k": 7,
      "stop_sequences": ["a", "b"], "stream": true, "max_tokens": 12)");
  EXPECT_TRUE(call.is_chat);
  EXPECT_TRUE(call.is_message);
  EXPECT_TRUE(call.streams);
  EXPECT_EQ(call.model, "tales");
  const v1::GenerateRequest& request = call.requests[0];
  EXPECT_EQ(request.sampling().temperature(), 0.5F);
  EXPECT_EQ(request.sampling().top_p(), 0.25F);
  EXPECT_EQ(request.sampling().top_k(), 7);
  EXPECT_EQ(request.stopping().max_tokens(), 12u);
  EXPECT_THAT(request.stopping().stop(), ElementsAre("a", "b"));
}

TEST(MessageCallTest, MaxTokensIsRequiredExceptForCounting) {
  const Json body = *ParseBody(R"({"messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(std::get<ApiError>(ReadMessageCall(body)).message, "max_tokens is missing");
  EXPECT_TRUE(std::holds_alternative<GenerateCall>(ReadCountTokensCall(body)));
  EXPECT_EQ(MessageErrorOf(R"("max_tokens": -1)"), "max_tokens is -1, it must be a whole number from 0 to 4294967295");
}

TEST(MessageCallTest, WithoutTokensAMessageFillsTheCache) {
  const GenerateCall call = ReadMessage(R"("max_tokens": 0)");
  EXPECT_TRUE(call.only_fills_cache);
  EXPECT_EQ(call.requests[0].stopping().max_tokens(), 1u) << "the manager computes a prompt for a token";
  EXPECT_FALSE(ReadMessage(R"("max_tokens": 1)").only_fills_cache);
}

TEST(MessageCallTest, TheModelThinksIfItIsAskedTo) {
  EXPECT_EQ(ReadChat("").template_kwargs(), R"({"enable_thinking":false})");
  EXPECT_EQ(ReadChat(R"("thinking": {"type": "disabled"})").template_kwargs(), R"({"enable_thinking":false})");
  EXPECT_EQ(ReadChat(R"("thinking": {"type": "adaptive"})").template_kwargs(), R"({"enable_thinking":true})");
  EXPECT_EQ(ReadChat(R"("thinking": {"type": "enabled", "budget_tokens": 1024})").template_kwargs(),
            R"({"enable_thinking":true})");
  EXPECT_EQ(MessageErrorOf(R"("thinking": {"type": "on"})"),
            "thinking.type is \"on\", it must be enabled, disabled or adaptive");
  EXPECT_EQ(MessageErrorOf(R"("thinking": {})"), "thinking.type is missing");
  EXPECT_THAT(MessageErrorOf(R"("thinking": {"type": "enabled", "budget_tokens": "x"})"),
              HasSubstr("thinking.budget_tokens is \"x\", it must be a whole number"));
}

TEST(MessageCallTest, AnAnswerMayFollowASchema) {
  const std::string schema = R"({"type": "json_schema", "schema": {"type": "object"}})";
  for (const std::string& field : {R"("output_config": {"format": )" + schema + "}", R"("output_format": )" + schema}) {
    EXPECT_EQ(ReadMessage(field).requests[0].guided().json_schema(), R"({"type":"object"})");
  }
  EXPECT_EQ(ReadMessage(R"("output_format": )" + schema).names.guide, "output_format.schema");
  EXPECT_EQ(MessageErrorOf(R"("output_format": )" + schema + R"(, "output_config": {"format": )" + schema + "}"),
            "output_config.format cannot be combined with output_format.schema");
  EXPECT_EQ(MessageErrorOf(R"("output_config": {"format": {"type": "text"}})"),
            "output_config.format.type is \"text\", it must be json_schema");
  EXPECT_EQ(MessageErrorOf(R"("output_config": {"format": {"type": "json_schema"}})"),
            "output_config.format.schema is missing");
}

TEST(MessageCallTest, TheEffortIsAVariableOfTheTemplate) {
  EXPECT_EQ(ReadChat(R"("output_config": {"effort": "low"})").template_kwargs(),
            R"({"enable_thinking":false,"reasoning_effort":"low"})");
  EXPECT_EQ(MessageErrorOf(R"("output_config": {"efort": "low"})"),
            "output_config.efort is not known to this server; did you mean effort?");
}

TEST(MessageCallTest, WhatAsksForNothingIsAccepted) {
  for (const char* members :
       {R"("metadata": {"user_id": "u"})", R"("service_tier": "auto")", R"("cache_control": {"type": "ephemeral"})",
        R"("container": null)", R"("mcp_servers": [])", R"("inference_geo": "us")",
        R"("diagnostics": {"previous_message_id": "msg_1"})", R"("speed": "standard")",
        R"("context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})",
        R"("stop_sequences": [])", R"("tools": [])", R"("system": "")", R"("temperature": null)"}) {
    EXPECT_EQ(ReadMessage(members).requests.size(), 1u) << members;
  }
}

TEST(MessageCallTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(MessageErrorOf(R"("mcp_servers": [{}])"),
            "mcp_servers is a list, which is not supported: this server calls no other servers");
  EXPECT_EQ(MessageErrorOf(R"("context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]})"),
            "context_management.edits[0].type is \"clear_tool_uses_20250919\", which is not supported: this server "
            "shortens no conversation");
  EXPECT_EQ(MessageErrorOf(R"("stop": "x")"), "stop is not known to this server");
  EXPECT_EQ(MessageErrorOf(R"("max_token": 1)"), "max_token is not known to this server; did you mean max_tokens?");
  EXPECT_EQ(MessageErrorOf(R"("metadata": "u")"), "metadata is \"u\", it must be an object");
}

TEST(MessageCallTest, CountingAnswersWithTheNumberOfTokens) {
  v1::RenderChatResponse prompt;
  for (const uint32_t id : {4, 5, 6}) prompt.add_token_ids(id);
  EXPECT_EQ(CountTokensBody(prompt), R"({"input_tokens":3})");
}

}  // namespace
}  // namespace quire
