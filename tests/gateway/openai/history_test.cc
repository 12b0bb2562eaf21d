// SPDX-License-Identifier: Apache-2.0

// What the gateway has answered is accepted back as a part of a conversation, and the chat template can write it.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"
#include "gateway/openai/generate_answer.h"
#include "gtest/gtest.h"
#include "kv_manager/chat/answer_format.h"
#include "tests/gateway/openai/chat_rendering.h"
#include "tests/gateway/openai/format_samples.h"
#include "tests/gateway/openai/model_outputs.h"

namespace quire {
namespace {

// Joins the deltas of a stream as OpenAI's clients do.
Json Joined(absl::string_view events) {
  Json message = {{"role", "assistant"}, {"content", nullptr}};
  for (absl::string_view event : absl::StrSplit(events, "\n\n", absl::SkipEmpty())) {
    if (!absl::ConsumePrefix(&event, "data: ") || event == "[DONE]") continue;
    const Json delta = Json::parse(event)["choices"][0]["delta"];
    for (const char* name : {"content", "reasoning", "reasoning_content"}) {
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
Json MessageOf(const std::string& output, bool streams, std::optional<AnswerSyntax> syntax = std::nullopt) {
  const std::string body = std::string(R"({"messages": [{"role": "user", "content": "x"}], "stream": )") +
                           (streams ? "true" : "false") +
                           R"(, "tools": [{"type": "function", "function": {"name": "f"}}]})";
  const GenerateCall call = std::get<GenerateCall>(ReadChatCall(*ParseBody(body)));
  GenerateAnswer answer(call, {.id = "chat-1", .created_unix_sec = 5, .model = "tales"});
  const AnswerSyntax hermes = {.has_reasoning = true,
                               .tool_calls = {.format = ToolCallFormat::kHermes, .tools = call.tools}};
  answer.SetSyntax(syntax.value_or(hermes));
  v1::GenerateResponse response;
  response.set_text_delta(output);
  response.set_finish_reason(v1::FINISH_REASON_LENGTH);
  const std::string events = answer.Add(0, response);
  return streams ? Joined(events) : Json::parse(answer.Body())["choices"][0]["message"];
}

// A conversation that continues after a message.
Json ConversationBehind(const Json& message) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}, message}}};
  for (const Json& call : message.value("tool_calls", Json::array())) {
    body["messages"].push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "r"}});
  }
  body["messages"].push_back({{"role", "user"}, {"content", "go on"}});
  return body;
}

TEST(HistoryTest, EveryAnswerIsAcceptedBack) {
  const auto model = ModelWithTemplate(kHistoryTemplate);
  for (const std::string output : kModelOutputs) {
    for (const bool streams : {false, true}) {
      const Json message = MessageOf(output, streams);
      const absl::StatusOr<std::string> text = RenderBody(ConversationBehind(message), *model);
      EXPECT_TRUE(text.ok()) << message << " " << text.status();
    }
  }
}

TEST(HistoryTest, AnswersInEveryFormatAreAcceptedBackWhereverTheyAreCut) {
  const auto model = ModelWithTemplate(kHistoryTemplate);
  for (const FormatSample& sample : FormatSamples()) {
    const AnswerSyntax syntax = SyntaxOfSample(sample.format, sample.reasoning_format, sample.text);
    const std::string all = sample.text;
    for (size_t size = 0; size <= all.size(); ++size) {
      const std::string output = all.substr(0, size);
      if (!IsValidUtf8(output)) continue;
      const Json message = MessageOf(output, /*streams=*/size % 2 == 0, syntax);
      const absl::StatusOr<std::string> text = RenderBody(ConversationBehind(message), *model);
      EXPECT_TRUE(text.ok()) << output << "\n" << message << " " << text.status();
    }
  }
}

TEST(HistoryTest, TheTagsOfAFormatInATemplateTellIt) {
  for (const CallSyntax& syntax : CallSyntaxes()) {
    const std::string source =
        absl::StrCat(syntax.open, syntax.group == CallGroup::kList ? "[" : "", syntax.begin, syntax.name_end,
                     syntax.key_begin, syntax.key_end, syntax.value_begin, syntax.close, "arguments");
    const std::string guess = GuessAnswerFormat(source).tool_calls;
    // These formats have no tag of their own, or templates of others have it as well.
    const bool needs_more =
        syntax.name == "llama3" || syntax.name == "openai" || syntax.name == "granite" || syntax.name == "gigachat3";
    EXPECT_EQ(guess, needs_more ? "" : std::string(syntax.name)) << source;
  }
}

// The template of a model writes a message, and the parser reads it again.
TEST(HistoryTest, TemplatesOfModelsWriteWhatTheParserReads) {
  const char* const folder = std::getenv("QUIRE_CHAT_TEMPLATES");
  if (folder == nullptr) GTEST_SKIP() << "QUIRE_CHAT_TEMPLATES is not set";
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters":
    {"type": "object", "required": ["s", "a"],
     "properties": {"s": {"type": "string", "description": "d"}, "a": {"type": "integer", "description": "d"},
                    "l": {"type": "array", "items": {"type": "string"}, "description": "d"},
                    "b": {"type": "boolean", "description": "d"}}}}}])");
  // Some templates write lists and booleans as Python does.
  const Json arguments = Json::parse(R"({"s": "one\n<b> \"two\"", "a": 7, "l": ["x", "y"], "b": true})");
  size_t num_read = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(file.path().stem().string());
    std::ifstream in(file.path());
    const std::string source((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const AnswerFormat format = GuessAnswerFormat(source);
    if (format.tool_calls.empty()) continue;
    const auto model = ModelWithTemplate(source);
    Json body = {{"tools", tools},
                 {"messages", {{{"role", "user"}, {"content", "question"}}}},
                 {"add_generation_prompt", false}};
    const absl::StatusOr<std::string> prompt = RenderBody(body, *model);
    body["messages"].push_back({{"role", "assistant"},
                                {"content", nullptr},
                                {"tool_calls",
                                 {{{"id", "functio01"},
                                   {"type", "function"},
                                   {"function", {{"name", "f"}, {"arguments", Dump(arguments)}}}}}}});
    const absl::StatusOr<std::string> all = RenderBody(body, *model);
    if (!prompt.ok() || !all.ok()) continue;  // This template refuses tools.
    const size_t begin = static_cast<size_t>(
        std::mismatch(prompt->begin(), prompt->end(), all->begin(), all->end()).second - all->begin());
    const std::string answer = all->substr(begin);
    if (answer.find("one") == answer.npos) continue;  // This template leaves calls out.
    const AnswerSyntax syntax = {.tool_calls = {.format = ToolCallFormatOf(format.tool_calls),
                                                .tools = {"f"},
                                                .parameters = ParametersOfTools(tools)}};
    AnswerParser parser(&syntax, [](size_t) { return "id"; });
    const AnswerText text = parser.Add(answer, /*is_last=*/true);
    ASSERT_EQ(text.calls.size(), 1u) << answer;
    // Some templates write the arguments in the order of their names.
    EXPECT_EQ(nlohmann::json::parse(text.calls[0].arguments, nullptr, /*allow_exceptions=*/false),
              nlohmann::json(arguments))
        << answer << "\n"
        << text.calls[0].arguments;
    ++num_read;
  }
  EXPECT_GT(num_read, 0u);
}

TEST(HistoryTest, ArgumentsKeepTheirDigits) {
  const char* const output =
      R"(<think>so</think>Look: <tool_call>{"name": "f", "arguments": {"a": 12345678901234567890123}}</tool_call>)";
  const auto model = ModelWithTemplate(kHistoryTemplate);
  const Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}, MessageOf(output, /*streams=*/false)}}};
  EXPECT_EQ(*RenderBody(body, *model), "[user]x[assistant]soLook:(f a=12345678901234567890123)");
}

}  // namespace
}  // namespace quire
