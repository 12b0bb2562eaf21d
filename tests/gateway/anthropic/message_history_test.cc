// SPDX-License-Identifier: Apache-2.0

// What /v1/messages has answered is accepted back as a part of a conversation, and the chat template can write it.

#include <string>
#include <variant>

#include "gateway/anthropic/message_answer.h"
#include "gtest/gtest.h"
#include "tests/gateway/anthropic/message_events.h"
#include "tests/gateway/anthropic/read_message.h"
#include "tests/gateway/openai/model_outputs.h"
#include "tests/kv_manager/requests/rendered_chat.h"

namespace quire {
namespace {

// The answer of the gateway to an output.
Json AnswerTo(const std::string& output, bool streams) {
  const GenerateCall call = ReadMessage(std::string(R"("stream": )") + (streams ? "true" : "false") +
                                        R"(, "tools": [{"name": "f", "input_schema": {}}])");
  MessageAnswer answer(call, {.id = "msg_1", .created_unix_sec = 5, .model = "tales"});
  answer.SetSyntax({.has_reasoning = true, .tool_calls = {.format = ToolCallFormat::kHermes, .tools = call.tools}});
  v1::GenerateResponse response;
  response.set_text_delta(output);
  response.set_finish_reason(v1::FINISH_REASON_LENGTH);
  const std::string events = answer.Add(0, response);
  return streams ? JoinedEvents(events + answer.LastEvents()) : Json::parse(answer.Body());
}

// The prompt of a conversation in which this answer is followed by the results of its tools.
absl::StatusOr<std::string> PromptBehind(const Json& answer) {
  const auto model = ModelWithTemplate(kHistoryTemplate);
  Json results = Json::array();
  for (const Json& block : answer["content"]) {
    if (block["type"] != "tool_use") continue;
    results.push_back({{"type", "tool_result"}, {"tool_use_id", block["id"]}, {"content", "r"}});
  }
  results.push_back({{"type", "text"}, {"text", "go on"}});
  Json messages = {{{"role", "user"}, {"content", "x"}},
                   {{"role", answer["role"]}, {"content", answer["content"]}},
                   {{"role", "user"}, {"content", results}}};
  const auto call = ReadMessageCall({{"max_tokens", 5}, {"messages", messages}});
  if (const auto* const error = std::get_if<ApiError>(&call)) return absl::InvalidArgumentError(error->message);
  return RenderedChat(std::get<GenerateCall>(call).requests[0].chat(), *model);
}

TEST(MessageHistoryTest, EveryAnswerIsAcceptedBack) {
  for (const std::string output : kModelOutputs) {
    const Json whole = AnswerTo(output, /*streams=*/false);
    EXPECT_EQ(AnswerTo(output, /*streams=*/true), whole);
    const absl::StatusOr<std::string> prompt = PromptBehind(whole);
    EXPECT_TRUE(prompt.ok()) << output << ": " << prompt.status();
  }
}

TEST(MessageHistoryTest, ThoughtsCallsAndResultsReachTheTemplate) {
  EXPECT_EQ(*PromptBehind(AnswerTo(kModelOutputs[6], /*streams=*/false)),
            "[user]x[assistant]soLook:(f a=1234567890123456789)[tool]r[user]go on");
}

}  // namespace
}  // namespace quire
