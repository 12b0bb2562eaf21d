// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/response_tools.h"

#include "gmock/gmock.h"
#include "tests/gateway/responses/read_response.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTools[] = R"("tools": [
    {"type": "function", "name": "f", "description": "does f", "strict": true,
     "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
    {"type": "custom", "name": "patch", "description": "does patch"},
    {"type": "namespace", "name": "mail", "description": "letters", "tools": [
     {"type": "function", "name": "send", "parameters": null}]}])";

std::string WithChoice(const std::string& choice) {
  return std::string(kTools) + R"(, "tool_choice": )" + choice;
}

std::string Tool(const std::string& members) {
  return R"("tools": [{)" + members + "}]";
}

std::vector<std::string> Names(const std::vector<CallableTool>& tools) {
  std::vector<std::string> names;
  for (const CallableTool& tool : tools) names.push_back(tool.name);
  return names;
}

TEST(ResponseToolsTest, TemplatesGetFunctionsInTheFormOfChats) {
  const GenerateCall call = ReadResponse(kTools);
  EXPECT_EQ(
      call.requests[0].chat().tools(),
      R"([{"type":"function","function":{"name":"f","description":"does f","parameters":{"type":"object",)"
      R"("properties":{"a":{"type":"string"}}},"strict":true}},{"type":"function","function":{"name":"patch",)"
      R"("description":"does patch","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":)"
      R"(["input"],"additionalProperties":false}}},{"type":"function","function":{"name":"mail.send"}}])");
  EXPECT_THAT(call.tools, ElementsAre("f", "patch", "mail.send"));
  EXPECT_TRUE(call.may_call_tools);
  EXPECT_TRUE(call.has_parallel_tool_calls);
  EXPECT_THAT(call.forced_tools, IsEmpty());
  EXPECT_FALSE(ReadResponse(R"("parallel_tool_calls": false)").has_parallel_tool_calls);
}

TEST(ResponseToolsTest, TheModelReadsTheGrammarOfACustomTool) {
  const v1::Chat chat = ReadResponseChat(Tool(R"("type": "custom", "name": "p", "description": "Edits.",
      "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"})"));
  EXPECT_THAT(chat.tools(), HasSubstr(R"(Edits.\n\nThe input must match this grammar of Lark:\nstart: /a+/")"));
  EXPECT_THAT(ReadResponseChat(Tool(R"("type": "custom", "name": "p", "format": {"type": "text"})")).tools(),
              HasSubstr(R"({"name":"p","parameters")"));
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "custom", "name": "p", "format": {"type": "json"})")),
            "tools[0].format.type is \"json\", it must be text or grammar");
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "gbnf"})")),
            "tools[0].format.syntax is \"gbnf\", it must be lark or regex");
}

TEST(ResponseToolsTest, TheInputOfACustomToolIsATextForTheClient) {
  EXPECT_EQ(CustomInput(CustomArguments("a\n\"b\"")), "a\n\"b\"");
  EXPECT_EQ(CustomInput(R"({"input": "cut)"), R"({"input": "cut)");
  EXPECT_EQ(CustomInput(R"({"other": 1})"), R"({"other": 1})");
  EXPECT_EQ(CustomInput(R"({"input": 1})"), R"({"input": 1})");
}

TEST(ResponseToolsTest, AToolOfAnotherTypeIsRefusedByName) {
  for (const char* type : {"web_search", "file_search", "computer_use_preview", "code_interpreter", "mcp",
                           "image_generation", "local_shell", "shell", "apply_patch", "tool_search"}) {
    EXPECT_EQ(ResponseErrorOf(Tool(absl::StrCat(R"("type": ")", type, "\""))),
              absl::StrCat("tools[0].type is \"", type,
                           "\", which is not supported: only function, custom and namespace are; other tools run on "
                           "OpenAI's servers, or only its models know them"));
  }
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "namespace", "name": "n", "tools": [{"type": "web_search"}])")),
            "tools[0].tools[0].type is \"web_search\", which is not supported: only function and custom are; other "
            "tools run on OpenAI's servers, or only its models know them");
}

TEST(ResponseToolsTest, AWrongToolIsRefused) {
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "function")")), "tools[0].name is missing or empty");
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "function", "function": {"name": "f"})")),
            "tools[0].name is missing; it and what follows it belong beside the type, unlike in chats");
  EXPECT_EQ(ResponseErrorOf(Tool(R"("name": "f")")), "tools[0].type is missing");
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "function", "name": "f", "parameters": 7)")),
            "tools[0].parameters is 7, it must be an object");
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "function", "name": "f", "input_schema": {})")),
            "tools[0].input_schema is not known to this server; did you mean output_schema?");
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "function", "name": "f", "defer_loading": true)")),
            "tools[0].defer_loading is true, which is not supported: the chat template shows all tools");
  EXPECT_EQ(ResponseErrorOf(R"("tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}])"),
            "tools[1].name is \"f\", which tools[0] has already");
  EXPECT_EQ(ResponseErrorOf(R"("tools": [{"type": "function", "name": "n.f"},
                            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}])"),
            "tools[1].tools[0].name is \"n.f\", which tools[0] has already");
  EXPECT_EQ(ResponseErrorOf(R"("tools": {})"), "tools is an object, it must be a list");
  EXPECT_EQ(ResponseErrorOf(R"("tools": [7])"), "tools[0] is 7, it must be an object");
  EXPECT_EQ(ResponseErrorOf(Tool(R"("type": "namespace", "name": "n")")), "tools[0].tools is missing");
}

TEST(ResponseToolsTest, AChoiceMayForceCalls) {
  EXPECT_THAT(ReadResponse(WithChoice(R"("auto")")).forced_tools, IsEmpty());
  GenerateCall call = ReadResponse(WithChoice(R"("required")"));
  EXPECT_THAT(Names(call.forced_tools), ElementsAre("f", "patch", "mail.send"));
  EXPECT_EQ(call.forced_tools[2].field, "tools[2].tools[0]");
  EXPECT_FALSE(call.names_tool);
  call = ReadResponse(WithChoice(R"({"type": "function", "name": "f"})"));
  EXPECT_THAT(Names(call.forced_tools), ElementsAre("f"));
  EXPECT_TRUE(call.names_tool);
  call = ReadResponse(WithChoice(R"({"type": "custom", "name": "patch"})"));
  EXPECT_THAT(Names(call.forced_tools), ElementsAre("patch"));
  EXPECT_EQ(call.names.guide, "tools");
}

TEST(ResponseToolsTest, WithNoneTheModelKnowsNoTools) {
  const GenerateCall call = ReadResponse(WithChoice(R"("none")"));
  EXPECT_EQ(call.requests[0].chat().tools(), "");
  EXPECT_FALSE(call.may_call_tools);
}

TEST(ResponseToolsTest, AChoiceMayAllowSomeTools) {
  const std::string listed = R"("tools": [{"type": "custom", "name": "patch"}]})";
  GenerateCall call = ReadResponse(WithChoice(R"({"type": "allowed_tools", "mode": "auto", )" + listed));
  EXPECT_THAT(call.tools, ElementsAre("patch"));
  EXPECT_THAT(call.forced_tools, IsEmpty());
  EXPECT_THAT(call.requests[0].chat().tools(), HasSubstr("patch"));
  EXPECT_THAT(call.requests[0].chat().tools(), Not(HasSubstr("does f")));
  call = ReadResponse(WithChoice(R"({"type": "allowed_tools", "mode": "required", )" + listed));
  EXPECT_THAT(Names(call.forced_tools), ElementsAre("patch"));
}

TEST(ResponseToolsTest, AWrongChoiceIsRefused) {
  EXPECT_EQ(ResponseErrorOf(WithChoice(R"("any")")),
            "tool_choice is \"any\", it must be none, auto, required or an object with a type");
  EXPECT_EQ(ResponseErrorOf(WithChoice(R"({"type": "web_search_preview"})")),
            "tool_choice.type is \"web_search_preview\", it must be function, custom or allowed_tools");
  EXPECT_EQ(ResponseErrorOf(WithChoice("{}")), "tool_choice.type is missing");
  EXPECT_EQ(ResponseErrorOf(WithChoice(R"({"type": "function"})")), "tool_choice.name is missing or empty");
  EXPECT_EQ(ResponseErrorOf(WithChoice(R"({"type": "function", "name": "h"})")),
            "tool_choice.name is \"h\", which no function of tools has");
  EXPECT_EQ(ResponseErrorOf(R"("tool_choice": "required")"),
            "tool_choice is \"required\", but tools is missing or empty");
  EXPECT_EQ(ResponseErrorOf(WithChoice(R"({"type": "allowed_tools", "mode": "auto"})")),
            "tool_choice.tools is missing, empty or no list, it must name one of the tools at least");
  EXPECT_EQ(ResponseErrorOf(WithChoice(R"({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "h"}]})")),
            "tool_choice.tools[0].name is \"h\", which no function of tools has");
  EXPECT_EQ(ResponseErrorOf(WithChoice(
                R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}]})")),
            "tool_choice.tools[0].type is \"mcp\", it must be function or custom");
  EXPECT_EQ(ResponseErrorOf(WithChoice(R"("required", "text": {"format": {"type": "json_object"}})")),
            "tool_choice is \"required\", which cannot be combined with text.format.type");
}

}  // namespace
}  // namespace quire
