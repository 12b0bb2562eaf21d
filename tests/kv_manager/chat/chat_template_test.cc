// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv_manager/jinja/json.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const ChatTemplateFiles& files) {
  const auto chat = ChatTemplate::Load(files);
  return chat.ok() ? "" : std::string(chat.status().message());
}

ChatTemplate::Input Conversation() {
  ChatTemplate::Input input;
  input.messages.push_back(jinja::ParseJson(R"({"role": "user", "content": "Hi"})", /*from_user=*/true).value());
  return input;
}

std::string Render(const ChatTemplateFiles& files, ChatTemplate::Input input = Conversation()) {
  const auto chat = ChatTemplate::Load(files);
  EXPECT_TRUE(chat.ok()) << chat.status();
  if (!chat.ok() || *chat == nullptr) return "none";
  const auto text = (*chat)->Render(std::move(input), 1000);
  return text.ok() ? text->bytes : std::string(text.status().message());
}

TEST(ChatTemplateTest, TheFilesHaveTheirOrder) {
  const ChatTemplateFiles all{.chat_template_jinja = "file",
                              .chat_template_json = R"({"chat_template": "processor"})",
                              .tokenizer_config_json = R"({"chat_template": "config"})"};
  EXPECT_EQ(Render(all), "file");
  EXPECT_EQ(Render({.chat_template_json = all.chat_template_json, .tokenizer_config_json = all.tokenizer_config_json}),
            "config");
  EXPECT_EQ(Render({.chat_template_json = all.chat_template_json, .tokenizer_config_json = "{}"}), "processor");
  EXPECT_EQ(Render({.tokenizer_config_json = R"({"chat_template": null})"}), "none");
  EXPECT_EQ(Render({}), "none");
}

TEST(ChatTemplateTest, VariablesAreThoseOfTransformers) {
  const ChatTemplateFiles files{
      .chat_template_jinja =
          "{{ bos_token }} {{ eos_token }} {{ pad_token is defined }} {{ unk_token is defined }} "
          "{{ image_token }} {{ call_token }} {{ add_bos_token is defined }} "
          "{{ additional_special_tokens is defined }} {{ tools is none }} {{ documents is none }} "
          "{{ add_generation_prompt }} {{ messages[0].content }} {{ thinking is defined }}",
      .tokenizer_config_json = R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                                   "pad_token": null, "add_bos_token": true, "image_token": "<i>",
                                   "extra_special_tokens": {"call_token": {"content": "<c>"}},
                                   "additional_special_tokens": ["<x>"]})"};
  EXPECT_EQ(Render(files), "<s> </s> False False <i> <c> False False True True True Hi False");
  ChatTemplate::Input input = Conversation();
  input.more.emplace_back("thinking", jinja::Value(true));
  input.more.emplace_back("bos_token", jinja::Value("own"));
  input.add_generation_prompt = false;
  EXPECT_EQ(Render(files, std::move(input)), "own </s> False False <i> <c> False False True True False Hi True");
}

TEST(ChatTemplateTest, TokensOfSpecialTokensMapReplaceOthersUnlessThereAreAddedTokens) {
  const ChatTemplateFiles older{.chat_template_jinja = "{{ bos_token }} {{ eos_token }} {{ pad_token is defined }}",
                                .tokenizer_config_json = R"({"eos_token": "</s>", "pad_token": "<p>"})",
                                .special_tokens_map_json = R"({"bos_token": {"content": "<b>", "lstrip": false},
                                                               "eos_token": "<e>", "pad_token": null})"};
  EXPECT_EQ(Render(older), "<b> <e> False");
  ChatTemplateFiles newer = older;
  newer.tokenizer_config_json = R"({"eos_token": "</s>", "added_tokens_decoder": {}})";
  EXPECT_EQ(Render(newer), " </s> False");
  EXPECT_EQ(ErrorOf({.chat_template_jinja = "x", .special_tokens_map_json = R"({"bos_token": 1})"}),
            "special_tokens_map.json: bos_token: expected a text or an object with \"content\"");
}

TEST(ChatTemplateTest, DefaultTokensCountIfNoFileNamesThem) {
  EXPECT_EQ(Render({.chat_template_jinja = "{{ bos_token }}{{ eos_token }}{{ unk_token is defined }}",
                    .tokenizer_config_json = R"({"eos_token": null, "unk_token": null})",
                    .default_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}}),
            "<s>False");
}

TEST(ChatTemplateTest, FilesOfNamedTemplatesComeBeforeTheConfiguration) {
  ChatTemplate::Input with_tools = Conversation();
  with_tools.tools = jinja::ParseJson("[{}]", /*from_user=*/true).value();
  const ChatTemplateFiles both{.chat_template_jinja = "plain",
                               .tokenizer_config_json = R"({"chat_template": "config"})",
                               .additional = {{"tool_use", "tools"}}};
  EXPECT_EQ(Render(both), "plain");
  EXPECT_EQ(Render(both, with_tools), "tools");
  ChatTemplateFiles without_default = both;
  without_default.chat_template_jinja = "";
  EXPECT_THAT(Render(without_default), HasSubstr("and none is named \"default\""));
  EXPECT_EQ(Render(without_default, with_tools), "tools");
  ChatTemplateFiles twice = both;
  twice.additional = {{"default", "other"}};
  EXPECT_EQ(Render(twice), "other");
}

TEST(ChatTemplateTest, NamedTemplatesMayBeMembersOfAnObject) {
  EXPECT_EQ(Render({.tokenizer_config_json = R"({"chat_template": {"default": "plain", "tool_use": "tools"}})"}),
            "plain");
}

TEST(ChatTemplateTest, ATemplateTellsForWhichRolesItTakesParts) {
  const auto roles = [](const char* source) {
    const auto chat = ChatTemplate::Load({.chat_template_jinja = source});
    std::string taken;
    for (const char* role : {"system", "user", "assistant", "tool"}) {
      if ((*chat)->TakesParts(role, /*has_tools=*/false)) taken += std::string(role) + " ";
    }
    return taken;
  };
  EXPECT_EQ(roles("{% for m in messages %}{{ m.content }}{% endfor %}"), "") << "it prints the list";
  EXPECT_EQ(roles("{% for m in messages %}{{ m.content | tojson }}{% endfor %}"), "");
  EXPECT_EQ(roles("{% for m in messages %}{{ '<' + m.content }}{% endfor %}"), "") << "it refuses a list";
  EXPECT_EQ(
      roles("{% for m in messages %}{{ m.content | selectattr('text') | map(attribute='text') | join }}{% endfor %}"),
      "system user assistant tool ")
      << "the other messages of these conversations have a text";
  EXPECT_EQ(roles("{% for m in messages %}{% if m.role != 'tool' and m.content is not string %}{% for p in m.content %}"
                  "{{ p.text }}{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"),
            "system user assistant ");
}

TEST(ChatTemplateTest, NamedTemplatesAreChosenByTheTools) {
  const ChatTemplateFiles files{.tokenizer_config_json = R"({"chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})"};
  EXPECT_EQ(Render(files), "plain");
  ChatTemplate::Input input = Conversation();
  input.tools = jinja::ParseJson("[{}]", /*from_user=*/true).value();
  EXPECT_EQ(Render(files, std::move(input)), "tools");
  EXPECT_EQ(Render({.tokenizer_config_json = R"({"chat_template": [{"name": "rag", "template": ""}]})"}),
            "the model has chat templates named \"rag\", and none is named \"default\"");
}

TEST(ChatTemplateTest, ErrorsNameFileLineAndConstruct) {
  EXPECT_THAT(ErrorOf({.chat_template_jinja = "a\n{% extends 'x' %}"}),
              testing::AllOf(testing::StartsWith("chat_template.jinja: line 2: "), HasSubstr("extends")));
  EXPECT_THAT(ErrorOf({.tokenizer_config_json = R"({"chat_template": [{"name": "a", "template": "{% if %}"},
                                                                      {"name": "b", "template": ""}]})"}),
              testing::StartsWith("tokenizer_config.json: chat_template \"a\": line 1: "));
  EXPECT_EQ(ErrorOf({.tokenizer_config_json = R"({"chat_template": 3})"}),
            "tokenizer_config.json: chat_template: expected a text or a list of named templates");
  EXPECT_THAT(ErrorOf({.chat_template_json = "["}), HasSubstr("chat_template.json is not JSON"));
  EXPECT_EQ(ErrorOf({.chat_template_json = "[]"}), "chat_template.json: expected an object");
}

TEST(ChatTemplateTest, TheTextOfTheTemplateIsNotThatOfAUser) {
  const auto chat = ChatTemplate::Load({.chat_template_jinja = "<{{ messages[0].content }}>{{ bos_token }}",
                                        .tokenizer_config_json = R"({"bos_token": "<s>"})"});
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto text = (*chat)->Render(Conversation(), 1000);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->bytes, "<Hi><s>");
  EXPECT_EQ(text->user, std::vector<ByteRange>({{1, 3}}));
  EXPECT_THAT((*chat)->Render(Conversation(), 3).status().message(), HasSubstr("more than 3 bytes"));
}

}  // namespace
}  // namespace quire
