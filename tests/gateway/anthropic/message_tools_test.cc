// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/message_tools.h"

#include "gmock/gmock.h"
#include "tests/gateway/anthropic/read_message.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kTools[] = R"("tools": [
    {"name": "f", "description": "does f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}},
     "cache_control": {"type": "ephemeral"}},
    {"type": "custom", "name": "g", "input_schema": {"type": "object"}}])";

std::string WithChoice(const std::string& choice) {
  return std::string(kTools) + R"(, "tool_choice": )" + choice;
}

std::string Tool(const std::string& members) {
  return R"("tools": [{)" + members + "}]";
}

TEST(MessageToolsTest, TemplatesGetToolsInTheFormOfOpenAi) {
  const GenerateCall call = ReadMessage(kTools);
  EXPECT_EQ(call.requests[0].chat().tools(),
            R"([{"type":"function","function":{"name":"f","description":"does f","parameters":{"type":"object",)"
            R"("properties":{"a":{"type":"string"}}}}},{"type":"function","function":{"name":"g","parameters":)"
            R"({"type":"object"}}}])");
  EXPECT_THAT(call.tools, ElementsAre("f", "g"));
  EXPECT_TRUE(call.may_call_tools);
  EXPECT_TRUE(call.has_parallel_tool_calls);
  EXPECT_THAT(call.forced_tools, IsEmpty());
}

TEST(MessageToolsTest, AToolIsOneThatTheClientRuns) {
  EXPECT_EQ(
      MessageErrorOf(Tool(R"("type": "web_search_20250305", "name": "web_search")")),
      "tools[0].type is \"web_search_20250305\", which is not supported: only tools of the type custom are, which "
      "the client runs itself");
  EXPECT_EQ(MessageErrorOf(Tool(R"("name": "f")")), "tools[0].input_schema is missing");
  EXPECT_EQ(MessageErrorOf(Tool(R"("input_schema": {})")), "tools[0].name is missing or empty");
  EXPECT_EQ(MessageErrorOf(Tool(R"("name": "f", "parameters": {}, "input_schema": {})")),
            "tools[0].parameters is not known to this server");
  EXPECT_EQ(MessageErrorOf(R"("tools": [{"name": "f", "input_schema": {}}, {"name": "f", "input_schema": {}}])"),
            "tools[1].name is \"f\", which tools[0] has already");
  EXPECT_EQ(MessageErrorOf(R"("tools": {})"), "tools is an object, it must be a list");
  EXPECT_EQ(MessageErrorOf(R"("tools": [7])"), "tools[0] is 7, it must be an object");
}

TEST(MessageToolsTest, ADeferredToolIsLeftOutUntilAResultRefersToIt) {
  const std::string tools = R"("tools": [{"name": "f", "input_schema": {}},
      {"name": "g", "input_schema": {}, "defer_loading": true},
      {"name": "h", "input_schema": {}, "defer_loading": true}])";
  EXPECT_THAT(ReadMessage(tools).tools, ElementsAre("f"));
  const GenerateCall call = ReadMessage(tools + R"(, "messages": [{"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "h"},
                                                             {"type": "tool_reference", "tool_name": "gone"}]}]}])");
  EXPECT_THAT(call.tools, ElementsAre("f", "h"));
  EXPECT_THAT(call.requests[0].chat().messages(0).content_parts(),
              ElementsAre("The tool h can be called now.\n", "The tool gone can be called now.\n"));
  EXPECT_EQ(MessageErrorOf(Tool(R"("name": "f", "input_schema": {}, "defer_loading": 1)")),
            "tools[0].defer_loading is 1, it must be true or false");
}

TEST(MessageToolsTest, AChoiceMayForceCalls) {
  EXPECT_THAT(ReadMessage(WithChoice(R"({"type": "auto"})")).forced_tools, IsEmpty());
  GenerateCall call = ReadMessage(WithChoice(R"({"type": "any"})"));
  EXPECT_EQ(call.forced_tools.size(), 2u);
  EXPECT_FALSE(call.names_tool);
  call = ReadMessage(WithChoice(R"({"type": "tool", "name": "g"})"));
  ASSERT_EQ(call.forced_tools.size(), 1u);
  EXPECT_EQ(call.forced_tools[0].name, "g");
  EXPECT_EQ(call.forced_tools[0].field, "tools[1]");
  EXPECT_TRUE(call.names_tool);
  EXPECT_THAT(call.tools, ElementsAre("g"));
  EXPECT_EQ(call.names.guide, "tools");
}

TEST(MessageToolsTest, WithNoneTheModelKnowsNoTools) {
  const GenerateCall call = ReadMessage(WithChoice(R"({"type": "none"})"));
  EXPECT_EQ(call.requests[0].chat().tools(), "");
  EXPECT_FALSE(call.may_call_tools);
}

TEST(MessageToolsTest, ParallelCallsCanBeDisabled) {
  for (const char* type : {R"("auto")", R"("any")", R"("tool", "name": "f")"}) {
    const std::string choice = std::string(R"({"type": )") + type + R"(, "disable_parallel_tool_use": true})";
    EXPECT_FALSE(ReadMessage(WithChoice(choice)).has_parallel_tool_calls) << choice;
  }
}

TEST(MessageToolsTest, AWrongChoiceIsRefused) {
  EXPECT_EQ(MessageErrorOf(WithChoice(R"({"type": "required"})")),
            "tool_choice.type is \"required\", it must be auto, any, tool or none");
  EXPECT_EQ(MessageErrorOf(WithChoice("{}")), "tool_choice.type is missing");
  EXPECT_EQ(MessageErrorOf(WithChoice(R"("any")")), "tool_choice is \"any\", it must be an object");
  EXPECT_EQ(MessageErrorOf(WithChoice(R"({"type": "tool"})")), "tool_choice.name is missing");
  EXPECT_EQ(MessageErrorOf(WithChoice(R"({"type": "tool", "name": "h"})")),
            "tool_choice.name is \"h\", which no function of tools has");
  EXPECT_EQ(MessageErrorOf(R"("tool_choice": {"type": "any"})"),
            "tool_choice has the type any, but tools is missing or empty");
  EXPECT_EQ(MessageErrorOf(R"("tools": [{"name": "f", "input_schema": {"type": "string"}}],
                              "tool_choice": {"type": "any"})"),
            "tools[0].input_schema.type is \"string\", it must be \"object\"");
  EXPECT_EQ(MessageErrorOf(WithChoice(R"({"type": "any"}, "output_format": {"type": "json_schema", "schema": {}})")),
            "tool_choice has the type any, which cannot be combined with output_format.schema");
}

}  // namespace
}  // namespace quire
