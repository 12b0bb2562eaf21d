// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/input_reader.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "tests/gateway/responses/read_response.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Input(const std::string& items) {
  return R"("input": [)" + items + "]";
}

// Each message as "role: thoughts|content|calls", without parts that are empty.
std::vector<std::string> Messages(const std::string& members) {
  std::vector<std::string> texts;
  const v1::Chat chat = ReadResponseChat(members);
  for (const v1::ChatMessage& message : chat.messages()) {
    std::string text = absl::StrCat(message.role(), ":");
    if (!message.reasoning_content().empty()) absl::StrAppend(&text, " <", message.reasoning_content(), ">");
    if (message.has_content()) absl::StrAppend(&text, " ", message.content());
    if (!message.content_parts().empty())
      absl::StrAppend(&text, " [", absl::StrJoin(message.content_parts(), "|"), "]");
    for (const v1::ToolCall& call : message.tool_calls()) {
      absl::StrAppend(&text, " ", call.id(), "=", call.name(), call.arguments());
    }
    if (!message.tool_call_id().empty()) absl::StrAppend(&text, " (", message.tool_call_id(), ")");
    texts.push_back(text);
  }
  return texts;
}

TEST(InputReaderTest, ATextIsAMessageOfTheUser) {
  EXPECT_THAT(Messages(R"("input": "hello")"), ElementsAre("user: hello"));
}

TEST(InputReaderTest, MessagesHaveTextsOrParts) {
  EXPECT_THAT(Messages(Input(R"({"role": "user", "content": "a"},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b", "annotations": [],
       "logprobs": []}], "id": "msg_1", "status": "completed", "phase": "commentary"},
      {"role": "user", "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
      {"role": "developer", "content": "e"}, {"role": "system", "content": []})")),
              ElementsAre("user: a", "assistant: b", "user: [c|d]", "assistant: no", "developer: e", "system: "));
}

TEST(InputReaderTest, InstructionsAreTheFirstMessageOfTheSystem) {
  EXPECT_THAT(Messages(R"("instructions": "be kind")"), ElementsAre("system: be kind", "user: x"));
  EXPECT_THAT(Messages(R"("instructions": "")"), ElementsAre("user: x"));
  EXPECT_THAT(Messages(R"("instructions": "i", "input": [{"role": "developer", "content": "d"},
                          {"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                          {"role": "developer", "content": "later"}])"),
              ElementsAre("system: [i|\n\n|d|\n\n|s]", "user: u", "developer: later"))
      << "many templates take one message of the system";
  EXPECT_THAT(Messages(Input(R"({"role": "developer", "content": "a"}, {"role": "developer", "content": "b"},
                                {"role": "user", "content": "u"}, {"role": "system", "content": "later"},
                                {"role": "system", "content": "too"})")),
              ElementsAre("developer: [a|\n\n|b]", "user: u", "system: later", "system: too"))
      << "Codex sends two";
}

TEST(InputReaderTest, TheItemsOfAnAnswerAreOneMessage) {
  EXPECT_THAT(Messages(Input(R"({"role": "user", "content": "u"},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}],
       "encrypted_content": null, "status": "completed"},
      {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
       "content": [{"type": "output_text", "text": "I look."}]},
      {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{\"a\":1}"},
      {"type": "message", "role": "assistant", "content": "and"},
      {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "g", "input": "a\n\"b\""},
      {"type": "function_call_output", "call_id": "call_1", "output": "r1"},
      {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "r2"}]},
      {"type": "function_call", "call_id": "call_3", "name": "h", "namespace": "s", "arguments": "{}"})")),
              ElementsAre("user: u", R"(assistant: <hm> [I look.|and] call_1=f{"a":1} call_2=g{"input":"a\n\"b\""})",
                          "tool: r1 (call_1)", "tool: r2 (call_2)", "assistant: call_3=s.h{}"));
}

TEST(InputReaderTest, AnswersBehindEachOtherAreMessagesOfTheirOwn) {
  EXPECT_THAT(Messages(Input(R"({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"},
      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "c"}]},
      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "d"}]})")),
              ElementsAre("assistant: a", "assistant: b", "assistant: <c\nd> "));
}

TEST(InputReaderTest, ThoughtsComeBackAsTextOrToken) {
  const auto thoughts = [](const std::string& members) {
    return Messages(
        Input(R"({"type": "reasoning", "id": "rs_1", )" + members + R"(}, {"role": "user", "content": "u"})"));
  };
  // c28= is the base64 of "so".
  EXPECT_THAT(thoughts(R"("summary": [], "encrypted_content": "quire.1.c28")"),
              ElementsAre("assistant: <so> ", "user: u"));
  EXPECT_THAT(thoughts(R"("content": [{"type": "reasoning_text", "text": "a"}], "encrypted_content": "quire.1.c28")"),
              ElementsAre("assistant: <a> ", "user: u"));
  EXPECT_THAT(thoughts(R"("summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "gAAAA")"),
              ElementsAre("user: u"))
      << "only the server that has encrypted it can read it";
}

TEST(InputReaderTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(ResponseErrorOf(Input(R"({"role": "user", "content": [{"type": "input_image", "image_url": "u"}]})")),
            "input[0].content[0].type is \"input_image\", which is not supported: the model reads text only, so it "
            "must be input_text, output_text or refusal");
  EXPECT_THAT(ResponseErrorOf(Input(R"({"type": "function_call_output", "call_id": "c",
                                        "output": [{"type": "input_file", "file_id": "f"}]})")),
              HasSubstr("input[0].output[0].type is \"input_file\", which is not supported"));
  EXPECT_EQ(ResponseErrorOf(Input(R"({"type": "web_search_call", "id": "ws_1"})")),
            "input[0].type is \"web_search_call\", which is not supported: it must be message, reasoning, "
            "function_call, function_call_output, custom_tool_call or custom_tool_call_output");
  for (const char* item : {R"({"type": "item_reference", "id": "msg_1"})", R"({"id": "msg_1"})"}) {
    EXPECT_EQ(ResponseErrorOf(Input(item)),
              "input[0].id is the name of a stored item, and this server stores none; send the item itself, as the "
              "response had it in output")
        << item;
  }
}

TEST(InputReaderTest, AnErrorNamesTheField) {
  EXPECT_EQ(ResponseErrorOf(R"("input": null)"), "input is missing");
  EXPECT_EQ(ResponseErrorOf(R"("input": 7)"), "input is 7, it must be a string or a list of items");
  EXPECT_EQ(ResponseErrorOf(Input("")), "input is empty, it must have at least one item");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"})")),
            "input has nothing that the model can read; it must have at least one message, call or result");
  EXPECT_EQ(ResponseErrorOf(Input("7")), "input[0] is 7, it must be an object");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"content": "x"})")), "input[0].role is missing");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"role": "tool", "content": "x"})")),
            "input[0].role is \"tool\", it must be user, assistant, system or developer");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"role": "user"})")), "input[0].content is missing");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"role": "user", "content": 7})")),
            "input[0].content is 7, it must be a string or a list of parts");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"role": "user", "content": [{"type": "input_text"}]})")),
            "input[0].content[0].text is missing");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"role": "user", "content": "x", "name": "n"})")),
            "input[0].name is not known to this server");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"type": "function_call", "call_id": "c", "name": "f"})")),
            "input[0].arguments is missing");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"type": "custom_tool_call", "call_id": "c", "name": "f"})")),
            "input[0].input is missing");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"type": "function_call_output", "output": "r"})")),
            "input[0].call_id is missing");
  EXPECT_EQ(ResponseErrorOf(Input(R"({"type": "reasoning", "content": [{"type": "text", "text": "t"}]})")),
            "input[0].content[0].type is \"text\", it must be reasoning_text");
}

TEST(InputReaderTest, ErrorsOfTheManagerNameTheItem) {
  const GenerateCall call = ReadResponse(R"("instructions": "i", "input": [{"role": "user", "content": "a"},
      {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]},
      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c", "output": "r"}])");
  EXPECT_THAT(call.names.messages, ElementsAre("instructions", "input[0]", "input[1]", "input[3]"));
  EXPECT_EQ(ApiFieldName("chat.messages[3].content", call.names), "input[3]");
  EXPECT_EQ(ApiFieldName("chat", call.names), "input");
}

}  // namespace
}  // namespace quire
