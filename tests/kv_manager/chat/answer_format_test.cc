// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/chat/answer_format.h"

#include <gtest/gtest.h>

#include "kv_manager/chat/chat_template.h"

namespace quire {
namespace {

TEST(AnswerFormatTest, TheTagsOfATemplateTellHowCallsAreWritten) {
  EXPECT_EQ(GuessAnswerFormat(R"({{- '<tool_call>\n{"name": "' }}{{ '", "arguments": ' }}{{- '}\n</tool_call>' }})")
                .tool_calls,
            "hermes");
  EXPECT_EQ(GuessAnswerFormat("{{- '[TOOL_CALLS]' + call.function.name }}").tool_calls, "mistral");
  EXPECT_EQ(GuessAnswerFormat("{{- '<|start_header_id|>user' }}{{- 'Respond in the format {\"name\": function name, "
                              "\"parameters\": dictionary of argument name and its value}.' }}")
                .tool_calls,
            "llama3");
  EXPECT_EQ(GuessAnswerFormat("{{ messages[0].content }}").tool_calls, "");
}

TEST(AnswerFormatTest, CallsInXmlAreNotKnown) {
  EXPECT_EQ(GuessAnswerFormat("<tool_call>\n<function=name>\n</function>\n</tool_call> arguments").tool_calls, "");
  EXPECT_EQ(GuessAnswerFormat("<tool_call>name<arg_key>k</arg_key></tool_call> arguments").tool_calls, "");
}

TEST(AnswerFormatTest, TheEndTagOfThoughtsTellsThatTheModelThinks) {
  EXPECT_EQ(GuessAnswerFormat("{{ content.split('</think>')[-1] }}").reasoning, "think");
  EXPECT_EQ(GuessAnswerFormat("{{ content }}").reasoning, "");
}

TEST(AnswerFormatTest, ATemplateOfSeveralIsLookedThrough) {
  const auto chat = ChatTemplate::Load(
      {.tokenizer_config_json = R"({"chat_template": [{"name": "default", "template": "<think></think>"},
                                                      {"name": "tool_use", "template": "[TOOL_CALLS]"}]})"});
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ((*chat)->answer_format().tool_calls, "mistral");
  EXPECT_EQ((*chat)->answer_format().reasoning, "think");
}

}  // namespace
}  // namespace quire
