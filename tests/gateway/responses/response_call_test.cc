// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/response_call.h"

#include "gateway/responses/response_settings.h"
#include "gmock/gmock.h"
#include "tests/gateway/responses/read_response.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

TEST(ResponseCallTest, FieldsBecomeThoseOfTheManager) {
  const GenerateCall call = ReadResponse(R"("model": "tales", "temperature": 0.5, "top_p": 0.25, "top_k": 7, "seed": 3,
      "stream": true, "max_output_tokens": 12)");
  EXPECT_TRUE(call.is_chat);
  EXPECT_NE(call.response, nullptr);
  EXPECT_TRUE(call.streams);
  EXPECT_EQ(call.model, "tales");
  const v1::GenerateRequest& request = call.requests[0];
  EXPECT_EQ(request.sampling().temperature(), 0.5F);
  EXPECT_EQ(request.sampling().top_p(), 0.25F);
  EXPECT_EQ(request.sampling().top_k(), 7);
  EXPECT_EQ(request.sampling().seed(), 3u);
  EXPECT_EQ(request.stopping().max_tokens(), 12u);
  EXPECT_EQ(call.names.max_tokens, "max_output_tokens");
  EXPECT_EQ(call.num_bytes, call.response->echo.size()) << "the gateway adds the messages";
  EXPECT_FALSE(ReadResponse("").requests[0].stopping().has_max_tokens());
}

TEST(ResponseCallTest, AnAnswerMayFollowASchema) {
  const std::string format = R"({"type": "json_schema", "name": "n", "strict": true, "description": "d",
                                "schema": {"type": "object"}})";
  const GenerateCall call = ReadResponse(R"("text": {"format": )" + format + "}");
  EXPECT_EQ(call.requests[0].guided().json_schema(), R"({"type":"object"})");
  EXPECT_EQ(call.names.guide, "text.format.schema");
  EXPECT_TRUE(ReadResponse(R"("text": {"format": {"type": "json_object"}})").requests[0].guided().json_object());
  EXPECT_FALSE(ReadResponse(R"("text": {"format": {"type": "text"}})").requests[0].has_guided());
  EXPECT_EQ(ResponseErrorOf(R"("text": {"format": {"type": "json_schema", "name": "n"}})"),
            "text.format.schema is missing");
  EXPECT_EQ(ResponseErrorOf(R"("text": {"format": {"type": "xml"}})"),
            "text.format.type is \"xml\", it must be text, json_object or json_schema");
}

TEST(ResponseCallTest, EffortAndVerbosityAreVariablesOfTheTemplate) {
  EXPECT_EQ(ReadResponseChat("").template_kwargs(), "");
  EXPECT_EQ(ReadResponseChat(R"("reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "high"})")
                .template_kwargs(),
            R"({"reasoning_effort":"low","verbosity":"high"})");
  EXPECT_EQ(ReadResponseChat(R"("chat_template_kwargs": {"enable_thinking": false}, "reasoning": {"effort": "low"})")
                .template_kwargs(),
            R"({"enable_thinking":false,"reasoning_effort":"low"})");
  EXPECT_EQ(ResponseErrorOf(R"("chat_template_kwargs": {"reasoning_effort": "high"}, "reasoning": {"effort": "low"})"),
            "reasoning.effort is \"low\", but chat_template_kwargs.reasoning_effort is another value");
  EXPECT_EQ(ResponseErrorOf(R"("reasoning": {"mode": "pro"})"),
            "reasoning.mode is \"pro\", which is not supported: the model has one mode");
}

TEST(ResponseCallTest, LogprobsAreIncludedOnDemand) {
  const std::string include = R"("include": ["message.output_text.logprobs"])";
  EXPECT_EQ(ReadResponse(include).logprobs, 0u);
  const GenerateCall call = ReadResponse(include + R"(, "top_logprobs": 3)");
  EXPECT_EQ(call.logprobs, 3u);
  EXPECT_EQ(call.requests[0].logprobs(), 3u);
  EXPECT_FALSE(ReadResponse(R"("top_logprobs": 0)").logprobs.has_value());
  EXPECT_EQ(ResponseErrorOf(R"("top_logprobs": 3)"), "top_logprobs needs \"message.output_text.logprobs\" in include");
  EXPECT_EQ(ResponseErrorOf(include + R"(, "top_logprobs": 21)"),
            "top_logprobs is 21, it must be a whole number from 0 to 20");
}

TEST(ResponseCallTest, IncludeMayNameWhatIsNotThere) {
  EXPECT_TRUE(ReadResponse(R"("include": ["reasoning.encrypted_content"])").response->keeps_thoughts);
  EXPECT_FALSE(ReadResponse(R"("include": ["web_search_call.action.sources"])").response->keeps_thoughts);
  EXPECT_EQ(ResponseErrorOf(R"("include": ["usage"])"), "include has \"usage\", which is not known to this server");
}

TEST(ResponseCallTest, WhatAsksForNothingIsAccepted) {
  for (const char* members :
       {R"("store": true)", R"("store": false)", R"("metadata": {"a": "b"})", R"("user": "u")",
        R"("safety_identifier": "s")", R"("prompt_cache_key": "k")", R"("service_tier": "auto")",
        R"("truncation": "disabled")", R"("background": false)", R"("previous_response_id": null)",
        R"("conversation": null)", R"("prompt": null)", R"("max_tool_calls": 3)", R"("include": [])",
        R"("stream_options": {"include_obfuscation": false})", R"("context_management": [])",
        R"("prompt_cache_retention": "24h")", R"("client_metadata": {"a": "b"})", R"("tools": [])"}) {
    EXPECT_EQ(ReadResponse(members).requests.size(), 1u) << members;
  }
}

TEST(ResponseCallTest, WhatNeedsAStoreIsRefusedWithTheWayAround) {
  for (const char* field : {"previous_response_id", "conversation"}) {
    EXPECT_EQ(ResponseErrorOf(absl::StrCat("\"", field, R"(": "resp_1")")),
              absl::StrCat(field,
                           " is not supported: this server stores no responses; send the whole conversation in "
                           "input: the items of the former inputs and outputs, and behind them the new ones"));
  }
  EXPECT_THAT(ResponseErrorOf(R"("background": true)"), HasSubstr("this server stores no responses; ask for a stream"));
  EXPECT_THAT(ResponseErrorOf(R"("prompt": {"id": "p"})"), HasSubstr("send its text in instructions and input"));
}

TEST(ResponseCallTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(ResponseErrorOf(R"("truncation": "auto")"),
            "truncation is \"auto\", which is not supported: a prompt is never cut; leave the oldest items of input "
            "out");
  EXPECT_EQ(ResponseErrorOf(R"("max_tokens": 1)"), "max_tokens is not known to this server");
  EXPECT_EQ(ResponseErrorOf(R"("max_output_token": 1)"),
            "max_output_token is not known to this server; did you mean max_output_tokens?");
  EXPECT_EQ(ResponseErrorOf(R"("max_output_tokens": 0)"),
            "max_output_tokens is 0, it must be a whole number from 1 to 4294967295");
  EXPECT_EQ(ResponseErrorOf(R"("messages": [])"), "messages is not known to this server");
  EXPECT_EQ(ResponseErrorOf(R"("stream_options": {"include_obfuscation": true})"),
            "stream_options.include_obfuscation is true, but stream is not");
  EXPECT_EQ(ResponseErrorOf(R"("stream": true, "stream_options": {"resumable": true})"),
            "stream_options.resumable is true, which is not supported: a response is not sent again; use "
            "/v1/chat/completions");
}

TEST(ResponseCallTest, UnknownFieldsMayBeIgnored) {
  const Json body = *ParseBody(
      R"({"input": [{"role": "user", "content": "x", "new": 1}], "newer": 2, "tools": [{"type": "function", "name": "f",
          "newest": 3}]})");
  const auto call = std::get<GenerateCall>(ReadResponseCall(body, UnknownFields::kIgnore));
  EXPECT_EQ(call.ignored.count, 3u);
}

TEST(ResponseCallTest, TheAnswerRepeatsTheRequest) {
  const auto echo = [](const std::string& members) {
    return Json::parse("{" + ReadResponse(members).response->echo + "}");
  };
  const Json defaults = echo("");
  EXPECT_EQ(defaults, Json::parse(R"({"background": false, "previous_response_id": null, "service_tier": "default",
      "instructions": null, "max_output_tokens": null, "max_tool_calls": null, "prompt_cache_key": null,
      "safety_identifier": null, "temperature": null, "top_p": null, "user": null, "metadata": {},
      "parallel_tool_calls": true, "reasoning": {"effort": null, "summary": null}, "store": false,
      "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_logprobs": 0,
      "truncation": "disabled"})"));
  const Json given = echo(R"("instructions": "i", "temperature": 0.5, "metadata": {"a": "b"}, "store": true,
      "tools": [{"type": "function", "name": "f"}], "tool_choice": "none", "reasoning": {"effort": "low"},
      "text": {"verbosity": "low"})");
  EXPECT_EQ(given["instructions"], "i");
  EXPECT_EQ(given["temperature"], 0.5);
  EXPECT_EQ(given["metadata"]["a"], "b");
  EXPECT_EQ(given["store"], false);
  EXPECT_EQ(given["tools"][0]["name"], "f");
  EXPECT_EQ(given["tool_choice"], "none");
  EXPECT_EQ(given["reasoning"]["effort"], "low");
  EXPECT_EQ(given["text"]["verbosity"], "low");
  EXPECT_EQ(given["text"]["format"]["type"], "text");
}

}  // namespace
}  // namespace quire
