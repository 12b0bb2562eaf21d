// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/conversation_reader.h"

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "tests/gateway/anthropic/read_message.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

// The messages of a chat as "role: content", with parts in brackets, then thoughts, calls and the id of the call.
std::string Shown(const std::string& members) {
  std::string text;
  const v1::Chat chat = ReadChat(members);
  for (const v1::ChatMessage& message : chat.messages()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", message.role(), ":");
    if (message.has_content()) absl::StrAppend(&text, " ", message.content());
    if (!message.content_parts().empty()) {
      absl::StrAppend(&text, " [", absl::StrJoin(message.content_parts(), "|"), "]");
    }
    if (message.has_reasoning_content()) absl::StrAppend(&text, " <", message.reasoning_content(), ">");
    for (const v1::ToolCall& call : message.tool_calls()) {
      absl::StrAppend(&text, " ", call.id(), "=", call.name(), call.arguments());
    }
    if (message.has_tool_call_id()) absl::StrAppend(&text, " for ", message.tool_call_id());
  }
  return text;
}

std::string User(const std::string& blocks) {
  return R"("messages": [{"role": "user", "content": )" + blocks + "}]";
}

std::string Assistant(const std::string& blocks) {
  return R"("messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": )" + blocks +
         R"(}, {"role": "user", "content": "y"}])";
}

TEST(ConversationReaderTest, ContentIsATextOrBlocks) {
  EXPECT_EQ(Shown(User(R"("hello")")), "user: hello");
  EXPECT_EQ(Shown(User(R"([{"type": "text", "text": "hello"}])")), "user: hello") << "one block is as a text";
  EXPECT_EQ(Shown(User(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])")), "user: [a|b]");
  EXPECT_EQ(Shown(User("[]")), "user: ");
}

TEST(ConversationReaderTest, TheSystemPromptIsTheFirstMessage) {
  EXPECT_EQ(Shown(R"("system": "be brief")"), "system: be brief; user: x");
  EXPECT_EQ(Shown(R"("system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                                {"type": "text", "text": "b"}])"),
            "system: [a|b]; user: x");
  EXPECT_EQ(Shown(R"("system": "")"), "user: x");
  EXPECT_EQ(Shown(R"("system": [])"), "user: x");
  EXPECT_EQ(MessageErrorOf(R"("system": 5)"), "system is 5, it must be a string or a list of blocks");
  EXPECT_EQ(MessageErrorOf(R"("system": [{"type": "image"}])"),
            "system[0].type is \"image\", which is not supported here: it must be text");
}

TEST(ConversationReaderTest, ASystemMessageStaysInItsPlace) {
  EXPECT_EQ(Shown(R"("system": "a", "messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "b"},
                     {"role": "user", "content": "y"}])"),
            "system: a; user: x; system: b; user: y");
}

TEST(ConversationReaderTest, TheBillingLineOfClaudeCodeIsLeftOut) {
  const std::string billing = "x-anthropic-billing-header: cc_version=2.0.1; cch=1a2b3";
  EXPECT_EQ(
      Shown(R"("system": [{"type": "text", "text": ")" + billing + R"("}, {"type": "text", "text": "You code"}])"),
      "system: You code; user: x");
  EXPECT_EQ(Shown(R"("system": ")" + billing + R"(\nYou code")"), "system: You code; user: x");
  EXPECT_EQ(Shown(R"("system": ")" + billing + "\""), "user: x");
  EXPECT_EQ(Shown(R"("messages": [{"role": "system", "content": ")" + billing + R"(\nYou code"}])"),
            "system: You code");
  EXPECT_EQ(Shown(R"("messages": [{"role": "user", "content": ")" + billing + R"("}])"), "user: " + billing);
  EXPECT_EQ(Shown(R"("system": "the x-anthropic-billing-header: is text here")"),
            "system: the x-anthropic-billing-header: is text here; user: x");
}

TEST(ConversationReaderTest, AnAnswerHasThoughtsTextsAndCalls) {
  EXPECT_EQ(Shown(Assistant(R"([{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "ok"},
      {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
      {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}])")),
            R"(user: x; assistant: ok <hm> toolu_1=f{"a":1} toolu_2=g{}; user: y)");
  EXPECT_EQ(Shown(Assistant("[]")), "user: x; assistant: ; user: y");
  EXPECT_EQ(Shown(Assistant(R"([{"type": "redacted_thinking", "data": "abc"}])")), "user: x; assistant: ; user: y");
  EXPECT_EQ(Shown(Assistant(R"([{"type": "thinking", "thinking": "a", "signature": "s"},
                                {"type": "thinking", "thinking": "b", "signature": "s"}])")),
            "user: x; assistant:  <a\nb>; user: y");
}

TEST(ConversationReaderTest, EachResultOfAToolIsAMessage) {
  EXPECT_EQ(Shown(User(R"([{"type": "tool_result", "tool_use_id": "t1", "content": "7"},
      {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "8"}]},
      {"type": "tool_result", "tool_use_id": "t3"},
      {"type": "tool_result", "tool_use_id": "t4", "is_error": true},
      {"type": "tool_result", "tool_use_id": "t5", "is_error": true, "content": "no file"},
      {"type": "text", "text": "so?"}, {"type": "text", "text": "now"}])")),
            "tool: 7 for t1; tool: 8 for t2; tool:  for t3; tool: error for t4; tool: no file for t5; user: [so?|now]");
  EXPECT_EQ(MessageErrorOf(User(R"([{"type": "tool_result"}])")), "messages[0].content[0].tool_use_id is missing");
  EXPECT_EQ(MessageErrorOf(User(R"([{"type": "tool_result", "tool_use_id": "t",
      "content": [{"type": "tool_reference"}]}])")),
            "messages[0].content[0].content[0].tool_name is missing or empty");
  EXPECT_EQ(MessageErrorOf(User(R"([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}])")),
            "messages[0].content[0].content[0].type is \"image\", which is not supported here: it must be text or "
            "tool_reference");
}

TEST(ConversationReaderTest, WhatTheModelCannotReadIsRefusedByName) {
  EXPECT_EQ(MessageErrorOf(User(R"([{"type": "text", "text": "a"}, {"type": "image", "source": {}}])")),
            "messages[0].content[1].type is \"image\", which is not supported here: it must be text or tool_result");
  EXPECT_EQ(MessageErrorOf(User(R"([{"type": "tool_use"}])")),
            "messages[0].content[0].type is \"tool_use\", which is not supported here: it must be text or tool_result");
  EXPECT_EQ(
      MessageErrorOf(Assistant(R"([{"type": "server_tool_use"}])")),
      "messages[1].content[0].type is \"server_tool_use\", which is not supported here: it must be text, thinking, "
      "redacted_thinking or tool_use");
  EXPECT_EQ(MessageErrorOf(User(R"([{"type": "text"}])")), "messages[0].content[0].text is missing");
  EXPECT_EQ(MessageErrorOf(User(R"([{"text": "a"}])")), "messages[0].content[0].type is missing");
  EXPECT_EQ(MessageErrorOf(User(R"(["a"])")), "messages[0].content[0] is \"a\", it must be an object");
  EXPECT_EQ(MessageErrorOf(User(R"([{"type": "text", "text": "a", "x": 1}])")),
            "messages[0].content[0].x is not known to this server");
  EXPECT_EQ(MessageErrorOf(User("7")), "messages[0].content is 7, it must be a string or a list of blocks");
  EXPECT_EQ(MessageErrorOf(R"("messages": [{"role": "tool", "content": "x"}])"),
            "messages[0].role is \"tool\", it must be user, assistant or system");
  EXPECT_EQ(MessageErrorOf(R"("messages": [{"content": "x"}])"), "messages[0].role is missing");
  EXPECT_EQ(MessageErrorOf(R"("messages": [{"role": "user"}])"), "messages[0].content is missing");
  EXPECT_EQ(MessageErrorOf(R"("messages": [])"), "messages is empty, it must have at least one message");
  EXPECT_EQ(MessageErrorOf(Assistant(R"([{"type": "tool_use", "id": "t", "name": "f", "input": []}])")),
            "messages[1].content[0].input is a list, it must be an object");
}

TEST(ConversationReaderTest, AnAnswerAtTheEndIsContinued) {
  const auto continues = [](const std::string& blocks) {
    return ReadChat(R"("messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": )" + blocks +
                    "}]")
        .continue_final_message();
  };
  EXPECT_TRUE(continues(R"("The answer is")"));
  EXPECT_TRUE(continues(R"([{"type": "text", "text": "a"}])"));
  EXPECT_TRUE(continues(R"([{"type": "thinking", "thinking": "a", "signature": ""}])"));
  EXPECT_FALSE(continues(R"("")"));
  EXPECT_FALSE(
      continues(R"([{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}])"));
  EXPECT_FALSE(ReadChat("").continue_final_message());
}

TEST(ConversationReaderTest, TheChatIsThatOfAChatCompletion) {
  const v1::Chat message = ReadChat(R"("system": [{"type": "text", "text": "s"}], "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
          {"type": "text", "text": "ok"},
          {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": [1, "\u00e4"]}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "7"},
          {"type": "text", "text": "go on"}]}],
      "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}])");
  const Json completion = *ParseBody(R"({"messages": [{"role": "system", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "reasoning_content": "hm", "content": "ok", "tool_calls": [
          {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":[1,\"\u00e4\"]}"}}]},
      {"role": "tool", "tool_call_id": "t1", "content": "7"}, {"role": "user", "content": "go on"}],
      "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
      "chat_template_kwargs": {"enable_thinking": false}})");
  const v1::Chat chat = std::get<GenerateCall>(ReadChatCall(completion)).requests[0].chat();
  EXPECT_EQ(message.DebugString(), chat.DebugString());
}

TEST(ConversationReaderTest, ErrorsOfTheManagerNameTheFieldOfTheClient) {
  const GenerateCall call = ReadMessage(R"("system": "s", "messages": [{"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t1"}, {"type": "text", "text": "a"}]},
      {"role": "user", "content": "b"}])");
  EXPECT_THAT(call.names.messages,
              ElementsAre("system", "messages[0].content[0]", "messages[0].content[1]", "messages[1]"));
  EXPECT_EQ(ApiFieldName("chat.messages[0].content", call.names), "system");
  EXPECT_EQ(ApiFieldName("start.chat.messages[1].role", call.names), "messages[0].content[0]");
  EXPECT_EQ(ApiFieldName("chat.messages[3].content", call.names), "messages[1]");
  EXPECT_EQ(ApiFieldName("chat.messages", call.names), "messages");
  EXPECT_EQ(ApiFieldName("stopping.stop[2]", call.names), "stop_sequences[2]");
  EXPECT_EQ(ApiFieldName("chat.template_kwargs", call.names), "thinking");
  EXPECT_EQ(ApiFieldName("sampling.top_k", call.names), "top_k");
}

}  // namespace
}  // namespace quire
