// SPDX-License-Identifier: Apache-2.0

// What /v1/responses has answered is accepted back as a part of the input, and the chat template can write it.

#include <string>
#include <variant>

#include "gateway/responses/response_answer.h"
#include "gtest/gtest.h"
#include "tests/gateway/openai/model_outputs.h"
#include "tests/gateway/responses/read_response.h"
#include "tests/gateway/responses/response_events.h"
#include "tests/kv_manager/requests/rendered_chat.h"

namespace quire {
namespace {

// The answer of the gateway to an output, with a tool of this type.
Json AnswerTo(const std::string& output, bool streams, const std::string& type) {
  const GenerateCall call = ReadResponse(std::string(R"("stream": )") + (streams ? "true" : "false") +
                                         R"(, "include": ["reasoning.encrypted_content"], "tools": [{"type": ")" +
                                         type + R"(", "name": "f"}])");
  ResponseAnswer answer(call, {.id = "resp_1", .created_unix_sec = 5, .model = "tales"});
  answer.SetSyntax({.has_reasoning = true, .tool_calls = {.format = ToolCallFormat::kHermes, .tools = call.tools}});
  v1::GenerateResponse response;
  response.set_text_delta(output);
  response.set_finish_reason(v1::FINISH_REASON_LENGTH);
  const std::string events = answer.Add(0, response);
  return streams ? JoinedResponse(events + answer.LastEvents()) : Json::parse(answer.Body());
}

// The prompt of a conversation in which this answer is followed by the results of its tools.
absl::StatusOr<std::string> PromptBehind(const Json& answer) {
  const auto model = ModelWithTemplate(kHistoryTemplate);
  Json input = {{{"role", "user"}, {"content", "x"}}};
  for (const Json& item : answer["output"]) input.push_back(item);
  for (const Json& item : answer["output"]) {
    if (!item.contains("call_id")) continue;
    input.push_back(
        {{"type", item["type"].get<std::string>() + "_output"}, {"call_id", item["call_id"]}, {"output", "r"}});
  }
  input.push_back({{"role", "user"}, {"content", "go on"}});
  const auto call = ReadResponseCall({{"input", input}});
  if (const auto* const error = std::get_if<ApiError>(&call)) return absl::InvalidArgumentError(error->message);
  return RenderedChat(std::get<GenerateCall>(call).requests[0].chat(), *model);
}

TEST(ResponseHistoryTest, EveryAnswerIsAcceptedBack) {
  for (const char* type : {"function", "custom"}) {
    for (const std::string output : kModelOutputs) {
      const Json whole = AnswerTo(output, /*streams=*/false, type);
      EXPECT_EQ(AnswerTo(output, /*streams=*/true, type), whole);
      const absl::StatusOr<std::string> prompt = PromptBehind(whole);
      EXPECT_TRUE(prompt.ok()) << output << ": " << prompt.status();
    }
  }
}

TEST(ResponseHistoryTest, ThoughtsCallsAndResultsReachTheTemplate) {
  const std::string prompt = "[user]x[assistant]soLook:(f a=1234567890123456789)[tool]r[user]go on";
  Json answer = AnswerTo(kModelOutputs[6], /*streams=*/false, "function");
  EXPECT_EQ(*PromptBehind(answer), prompt);
  answer["output"][0].erase("content");
  EXPECT_EQ(*PromptBehind(answer), prompt) << "Codex gives the token back, and not the text";
}

TEST(ResponseHistoryTest, TheInputOfACustomToolReachesTheTemplate) {
  const Json answer = AnswerTo(R"(<tool_call>{"name": "f", "arguments": {"input": "a\nb"}}</tool_call>)",
                               /*streams=*/true, "custom");
  EXPECT_EQ(*PromptBehind(answer), "[user]x[assistant](f input=a\nb)[tool]r[user]go on");
}

}  // namespace
}  // namespace quire
