// SPDX-License-Identifier: Apache-2.0

// What the gateway has answered is accepted back as a part of a conversation, and the chat template can write it.

#include <string>
#include <variant>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gateway/openai/generate_answer.h"
#include "gtest/gtest.h"
#include "tests/gateway/openai/chat_rendering.h"

namespace quire {
namespace {

constexpr char kTemplate[] =
    "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content }}{{ '' + m.content }}{% for c in m.tool_calls or [] "
    "%}"
    "{{ '(' + c.function.name }}{% for k, v in c.function.arguments | items %} {{ k }}={{ v }}{% endfor %})"
    "{% endfor %}{% endfor %}";

// What models write, and what is left when a limit cuts it.
constexpr const char* kOutputs[] = {
    "Hello.",
    "",
    "<think>cut in the mid",
    "<think>only thoughts</think>",
    "<think>first</think>then",
    R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)",
    R"(<think>so</think>Look: <tool_call>{"name": "f", "arguments": {"a": 12345678901234567890123}}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"
    R"(<tool_call>{"name": "f", "arguments": {"b": []}}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": {"a": "cut)",
    R"(<tool_call>{"name": "f", "arguments": {"a": tru}}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": "text"}</tool_call>)",
    R"(<tool_call>{"name": "f", "arguments": null}</tool_call>)",
    R"(<tool_call>{"name": "", "arguments": {}}</tool_call>)",
    R"(<tool_call>{"name": "f"}</tool_call>)",
    R"(<tool_call>{"nam)",
};

// Joins the deltas of a stream as OpenAI's clients do.
Json Joined(absl::string_view events) {
  Json message = {{"role", "assistant"}, {"content", nullptr}};
  for (absl::string_view event : absl::StrSplit(events, "\n\n", absl::SkipEmpty())) {
    if (!absl::ConsumePrefix(&event, "data: ") || event == "[DONE]") continue;
    const Json delta = Json::parse(event)["choices"][0]["delta"];
    for (const char* name : {"content", "reasoning_content"}) {
      if (!delta.contains(name) || delta[name].is_null()) continue;
      if (!message.contains(name) || message[name].is_null()) message[name] = "";
      message[name] = message[name].get<std::string>() + delta[name].get<std::string>();
    }
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      Json& calls = message["tool_calls"];
      if (calls.size() <= call["index"]) {
        calls.push_back(call);
      } else {
        Json& arguments = calls[call["index"].get<size_t>()]["function"]["arguments"];
        arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
      }
    }
  }
  return message;
}

// The message that the gateway makes of an output.
Json MessageOf(const std::string& output, bool streams) {
  const std::string body = std::string(R"({"messages": [{"role": "user", "content": "x"}], "stream": )") +
                           (streams ? "true" : "false") +
                           R"(, "tools": [{"type": "function", "function": {"name": "f"}}]})";
  const GenerateCall call = std::get<GenerateCall>(ReadChatCall(*ParseBody(body)));
  GenerateAnswer answer(call, {.id = "chat-1", .created_unix_sec = 5, .model = "tales"});
  answer.SetSyntax({.has_reasoning = true, .tool_calls = {.format = ToolCallFormat::kHermes, .tools = call.tools}});
  v1::GenerateResponse response;
  response.set_text_delta(output);
  response.set_finish_reason(v1::FINISH_REASON_LENGTH);
  const std::string events = answer.Add(0, response);
  return streams ? Joined(events) : Json::parse(answer.Body())["choices"][0]["message"];
}

TEST(HistoryTest, EveryAnswerIsAcceptedBack) {
  const auto model = ModelWithTemplate(std::string(kTemplate) + "{# 'tool' #}");
  for (const std::string output : kOutputs) {
    for (const bool streams : {false, true}) {
      const Json message = MessageOf(output, streams);
      Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}, message}}};
      for (const Json& call : message.value("tool_calls", Json::array())) {
        body["messages"].push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "r"}});
      }
      body["messages"].push_back({{"role", "user"}, {"content", "go on"}});
      const absl::StatusOr<std::string> text = RenderBody(body, *model);
      EXPECT_TRUE(text.ok()) << message << " " << text.status();
    }
  }
}

TEST(HistoryTest, ArgumentsKeepTheirDigits) {
  const auto model = ModelWithTemplate(std::string(kTemplate) + "{# 'tool' #}");
  const Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}, MessageOf(kOutputs[6], /*streams=*/false)}}};
  EXPECT_EQ(*RenderBody(body, *model), "[user]x[assistant]soLook:(f a=12345678901234567890123)");
}

}  // namespace
}  // namespace quire
