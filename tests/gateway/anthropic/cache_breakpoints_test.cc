// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/cache_breakpoints.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "tests/gateway/anthropic/read_message.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "5M" and "1H" stand for the two breakpoints.
std::string Marked(const std::string& members) {
  return absl::StrReplaceAll(members, {{"5M", R"("cache_control": {"type": "ephemeral"})"},
                                       {"1H", R"("cache_control": {"type": "ephemeral", "ttl": "1h"})"}});
}

// The pins of a request, as "messages.parts+tool calls:seconds".
std::vector<std::string> Pins(const std::string& members) {
  std::vector<std::string> shown;
  const GenerateCall call = ReadMessage(Marked(members));
  for (const v1::PrefixPin& pin : call.requests[0].pins()) {
    shown.push_back(absl::StrCat(pin.num_messages(), pin.has_num_parts() ? absl::StrCat(".", pin.num_parts()) : "",
                                 pin.has_num_tool_calls() ? absl::StrCat("+", pin.num_tool_calls()) : "", ":",
                                 pin.ttl_seconds()));
    EXPECT_EQ(call.pin_seconds[shown.size() - 1], pin.ttl_seconds());
  }
  return shown;
}

std::string Error(const std::string& members) {
  return MessageErrorOf(Marked(members));
}

TEST(CacheBreakpointsTest, ABreakpointIsAPinUpToItsBlock) {
  EXPECT_THAT(Pins(""), IsEmpty());
  EXPECT_THAT(Pins(R"("system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", 1H},
                                 {"type": "text", "text": "c"}])"),
              ElementsAre("1.2:3600"));
  EXPECT_THAT(Pins(R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a", 5M},
                                                               {"type": "text", "text": "b"}]}])"),
              ElementsAre("1.1:300"));
  EXPECT_THAT(Pins(R"("system": "a", "messages": [{"role": "user", "content": [{"type": "text", "text": "b", 5M}]},
                      {"role": "system", "content": [{"type": "text", "text": "c", 5M}]}])"),
              ElementsAre("2.1:300", "3.1:300"));
}

TEST(CacheBreakpointsTest, ToolsAndTheirCallsAndResultsCanBeMarked) {
  EXPECT_THAT(Pins(R"("tools": [{"name": "f", "input_schema": {}, 1H}, {"name": "g", "input_schema": {}, 5M}])"),
              ElementsAre("0:3600", "0:300"));
  EXPECT_THAT(Pins(R"("messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a", 5M},
          {"type": "tool_use", "id": "1", "name": "f", "input": {}, 5M},
          {"type": "tool_use", "id": "2", "name": "g", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "y", 5M},
          {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "a", 5M},
                                                                  {"type": "text", "text": "b"}]}]}])"),
              ElementsAre("2.1:300", "2+1:300", "3.1:300", "4.1:300"));
}

TEST(CacheBreakpointsTest, TheOneOfTheRequestIsAtItsEnd) {
  const std::string user = R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                                       {"type": "text", "text": "b")";
  EXPECT_THAT(Pins("5M"), ElementsAre("1.1:300"));
  EXPECT_THAT(Pins("1H, " + user + "}]}]"), ElementsAre("1.2:3600"));
  EXPECT_THAT(Pins("1H, " + user + ", 1H}]}]"), ElementsAre("1.2:3600")) << "the last block has it already";
  EXPECT_EQ(Error("1H, " + user + ", 5M}]}]"),
            "cache_control.ttl is 1h, and messages[0].content[1].cache_control.ttl of the last block is 5m");
}

TEST(CacheBreakpointsTest, WhatIsLeftOutOfThePromptPinsWhatComesBefore) {
  EXPECT_THAT(Pins(R"("system": [{"type": "text", "text": "x-anthropic-billing-header: a", 5M}])"),
              ElementsAre("0:300"));
}

TEST(CacheBreakpointsTest, ThereAreAtMostFour) {
  std::vector<std::string> blocks(4, Marked(R"({"type": "text", "text": "a", 5M})"));
  const auto members = [&] { return R"("system": [)" + absl::StrJoin(blocks, ",") + "]"; };
  EXPECT_THAT(Pins(members()), testing::SizeIs(4));
  EXPECT_EQ(Error("5M, " + members()), "cache_control is one of 5 breakpoints, at most 4 are allowed");
  blocks.push_back(blocks[0]);
  EXPECT_EQ(Error(members()), "system[4].cache_control is one of 5 breakpoints, at most 4 are allowed");
}

TEST(CacheBreakpointsTest, LongerTimesComeFirst) {
  EXPECT_EQ(Error(R"("tools": [{"name": "f", "input_schema": {}, 5M}],
                     "system": [{"type": "text", "text": "a", 1H}])"),
            "system[0].cache_control.ttl is 1h behind a breakpoint of 5m; those of 1h must come first in the order "
            "tools, system, messages");
  EXPECT_THAT(Pins(R"("tools": [{"name": "f", "input_schema": {}, 1H}],
                      "system": [{"type": "text", "text": "a", 5M}])"),
              ElementsAre("0:3600", "1.1:300"));
}

TEST(CacheBreakpointsTest, WrongOnesAreRefusedByName) {
  const auto error = [](const std::string& control) { return Error(R"("cache_control": )" + control); };
  EXPECT_EQ(error("5"), "cache_control is 5, it must be an object");
  EXPECT_EQ(error("{}"), "cache_control.type is missing");
  EXPECT_EQ(error(R"({"type": "lasting"})"), "cache_control.type is \"lasting\", it must be ephemeral");
  EXPECT_EQ(error(R"({"type": "ephemeral", "ttl": "2h"})"), "cache_control.ttl is \"2h\", it must be 5m or 1h");
  EXPECT_THAT(error(R"({"type": "ephemeral", "ttl": 300})"), HasSubstr("cache_control.ttl is 300, it must be"));
  EXPECT_EQ(error(R"({"type": "ephemeral", "time": 1})"), "cache_control.time is not known to this server");
  EXPECT_EQ(Error(R"("system": [{"type": "text", "text": "a", "cache_control": {"type": "x"}}])"),
            "system[0].cache_control.type is \"x\", it must be ephemeral");
  EXPECT_EQ(Error(R"("tools": [{"name": "f", "input_schema": {}, "cache_control": {"type": "x"}}])"),
            "tools[0].cache_control.type is \"x\", it must be ephemeral");
  EXPECT_EQ(Error(R"("messages": [{"role": "user", "content": "x"},
                                  {"role": "assistant", "content": [{"type": "thinking", "thinking": "a", 5M}]}])"),
            "messages[1].content[0].cache_control cannot be set for a block of the type thinking");
  EXPECT_THAT(Error(R"("messages": [{"role": "user", "content": [{"type": "image", 5M}]}])"),
              HasSubstr("messages[0].content[0].type is \"image\""));
}

}  // namespace
}  // namespace quire
