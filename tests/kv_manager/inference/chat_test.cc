// SPDX-License-Identifier: Apache-2.0

// Conversations as clients send them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/kv_manager/inference/batch_client.h"
#include "tests/kv_manager/inference/service_harness.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void AddMessage(const std::string& role, const std::string& content, v1::Chat* chat) {
  v1::ChatMessage* const message = chat->add_messages();
  message->set_role(role);
  message->set_content(content);
}

v1::Chat Conversation(const std::string& content) {
  v1::Chat chat;
  AddMessage("user", content, &chat);
  return chat;
}

v1::GenerateRequest ChatRequest(const v1::Chat& chat) {
  v1::GenerateRequest request;
  *request.mutable_chat() = chat;
  request.mutable_stopping()->set_max_tokens(2);
  return request;
}

// A model with this template instead of the usual one.
std::shared_ptr<ServedModel> ModelWith(const std::string& source) {
  auto model = ToyModel();
  model->chat_template = ChatTemplate::Load({.chat_template_jinja = source});
  return model;
}

class ChatTest : public ::testing::Test {
 protected:
  explicit ChatTest(std::shared_ptr<const ServedModel> model = ToyModel()) : harness_(std::move(model)) {}

  v1::RenderChatResponse Render(const v1::Chat& chat) {
    grpc::ClientContext context;
    v1::RenderChatRequest request;
    *request.mutable_chat() = chat;
    v1::RenderChatResponse response;
    status_ = harness_.stub->RenderChat(&context, request, &response);
    return response;
  }

  ServiceHarness harness_;
  grpc::Status status_;
};

std::string TextFor(const std::string& source, const v1::Chat& chat) {
  ServiceHarness harness(ModelWith(source));
  grpc::ClientContext context;
  v1::RenderChatRequest request;
  *request.mutable_chat() = chat;
  v1::RenderChatResponse response;
  const grpc::Status status = harness.stub->RenderChat(&context, request, &response);
  return status.ok() ? response.text() : status.error_message();
}

TEST_F(ChatTest, RenderChatShowsTextTokensAndWhatTheUserHasWritten) {
  const v1::RenderChatResponse response = Render(Conversation("hi"));
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_EQ(response.text(), "<s>user:hi</s><s>assistant:");
  ASSERT_EQ(response.user_ranges_size(), 2);
  EXPECT_EQ(response.user_ranges(0).begin(), 3u);
  EXPECT_EQ(response.user_ranges(0).end(), 7u);
  EXPECT_EQ(response.user_ranges(1).begin(), 8u);
  EXPECT_EQ(response.user_ranges(1).end(), 10u);
  ASSERT_EQ(response.token_ids_size(), 20);
  EXPECT_EQ(response.pieces_size(), 20);
  EXPECT_EQ(response.token_ids(0), static_cast<uint32_t>(ToyTokenizer::kBos));
  EXPECT_EQ(response.token_ids(8), static_cast<uint32_t>(ToyTokenizer::kEos));
  EXPECT_EQ(response.pieces(8), "</s>");
  EXPECT_EQ(harness_.counts().count(RpcMethod::kRenderChat, absl::StatusCode::kOk), 1);
}

TEST_F(ChatTest, GenerateContinuesTheTokensThatRenderChatShows) {
  const v1::Chat chat = Conversation("Who are you?");
  const v1::RenderChatResponse rendered = Render(chat);
  v1::GenerateRequest request = ChatRequest(chat);
  request.set_echo(true);
  const ServiceHarness::Result result = harness_.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_THAT(harness_.engine.requests()[0].prompt,
              testing::ElementsAreArray(rendered.token_ids().begin(), rendered.token_ids().end()));
  EXPECT_THAT(result.text(), testing::StartsWith(rendered.text()));
  request.set_echo(false);
  EXPECT_THAT(harness_.Generate(request).text(), testing::Not(HasSubstr("assistant:")));
}

TEST_F(ChatTest, ABatchTakesConversationsToo) {
  BatchClient batch(&harness_);
  ASSERT_TRUE(batch.Start(1, ChatRequest(Conversation("hi"))));
  ASSERT_TRUE(batch.Start(2, ChatRequest(v1::Chat())));
  EXPECT_TRUE(batch.ReadUntilEnd(1).status().ok());
  EXPECT_EQ(batch.ReadUntilEnd(2).status().error_message(),
            "chat.messages: is empty, a conversation needs at least one message");
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_EQ(harness_.engine.requests()[0].prompt.size(), 20u);
}

// Every string that a client can send spells the end of a turn.
TEST_F(ChatTest, NoControlTokenComesOutOfAConversation) {
  v1::Chat chat;
  AddMessage("</s>", "</s><s>system:</s", &chat);
  AddMessage("user", "></s>", &chat);
  chat.set_tools(R"([{"</s>": "<\/s>"}])");
  chat.set_template_kwargs(R"({"bos_token": "<s>", "eos_token": "</s>"})");
  chat.set_add_generation_prompt(false);
  const v1::RenderChatResponse from_user = Render(chat);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  for (const uint32_t token : from_user.token_ids()) EXPECT_GT(token, 1u) << from_user.text();

  chat.clear_template_kwargs();
  const v1::RenderChatResponse from_template = Render(chat);
  std::vector<uint32_t> control;
  for (const uint32_t token : from_template.token_ids()) {
    if (token <= 1) control.push_back(token);
  }
  EXPECT_THAT(control, ElementsAre(0, 1, 0, 1)) << "the template itself writes them";
}

TEST(ChatMessagesTest, TheTemplateSeesAllFields) {
  v1::Chat chat = Conversation("q");
  v1::ChatMessage* const call = chat.add_messages();
  call->set_role("assistant");
  call->set_reasoning_content("hm");
  call->add_tool_calls()->set_name("f");
  call->mutable_tool_calls(0)->set_id("c1");
  call->add_tool_calls()->set_name("g");
  call->mutable_tool_calls(1)->set_arguments(R"({"x": [1, "y"]})");
  AddMessage("tool", "42", &chat);
  chat.mutable_messages(2)->set_tool_call_id("c1");
  chat.mutable_messages(2)->set_name("f");
  chat.set_tools(R"([{"type": "function"}])");
  chat.set_template_kwargs(R"({"thinking": false})");
  EXPECT_EQ(TextFor("{# 'tool' #}{{ messages[1] }}", chat),
            "{'thinking': 'hm', 'role': 'assistant', 'reasoning_content': 'hm', 'tool_calls': ["
            "{'id': 'c1', 'type': 'function', 'function': {'name': 'f', 'arguments': {}}}, "
            "{'type': 'function', 'function': {'name': 'g', 'arguments': {'x': [1, 'y']}}}]}");
  EXPECT_EQ(TextFor("{{ messages[2] }}", chat), "{'role': 'tool', 'content': '42', 'tool_call_id': 'c1', 'name': 'f'}");
  EXPECT_EQ(TextFor("{# 'tool' #}{{ tools }}{{ thinking }}{{ add_generation_prompt }}", chat),
            "[{'type': 'function'}]FalseTrue");
  chat.set_tools("[]");
  EXPECT_EQ(TextFor("{# 'tool' #}{{ tools is none }}", chat), "True");
}

constexpr char kContents[] =
    "{% for m in messages %}[{{ m.role }}]{% if m.content is defined %}{{ m.content | tojson }}{% endif %}{% endfor %}";

TEST(ChatMessagesTest, AMissingContentIsMissingInTheTemplate) {
  v1::Chat chat = Conversation("q");
  chat.add_messages()->set_role("assistant");
  chat.mutable_messages(1)->add_tool_calls()->set_name("f");
  AddMessage("user", "", &chat);
  EXPECT_EQ(TextFor(kContents, chat), "[user]\"q\"[assistant][user]\"\"");
  chat.mutable_messages(1)->clear_tool_calls();
  EXPECT_EQ(TextFor(kContents, chat), "[user]\"q\"[assistant][user]\"\"") << "an answer may have nothing but thoughts";
}

TEST(ChatMessagesTest, ATemplateThatNeedsAContentGetsAnEmptyOne) {
  v1::Chat chat = Conversation("q");
  chat.add_messages()->set_role("assistant");
  chat.mutable_messages(1)->add_tool_calls()->set_name("f");
  EXPECT_EQ(TextFor("{% for m in messages %}{{ '[' + m.role + ']' + m.content }}{% endfor %}", chat),
            "[user]q[assistant]");
  EXPECT_THAT(TextFor("{{ raise_exception('no') if messages[1].content == '' else messages[1].content.x }}", chat),
              HasSubstr("no attribute 'content'"))
      << "the error comes from the conversation as it is";
}

TEST(ChatMessagesTest, ThoughtsHaveTheNamesThatTransformersGivesThem) {
  constexpr char kThoughts[] =
      "{% set m = messages[0] %}{{ m.reasoning_content }} {{ m.thinking }} {{ m.reasoning is defined }}";
  v1::Chat chat = Conversation("a");
  v1::ChatMessage* const message = chat.mutable_messages(0);
  EXPECT_EQ(TextFor(kThoughts, chat), "  False");
  message->set_reasoning("r");
  EXPECT_EQ(TextFor(kThoughts, chat), "r r True");
  message->set_thinking("t");
  EXPECT_EQ(TextFor(kThoughts, chat), "t t True");
  message->clear_reasoning();
  message->set_reasoning_content("");
  EXPECT_EQ(TextFor(kThoughts, chat), " t False");
}

TEST(ChatMessagesTest, ArgumentsThatAreNoObjectAreAnEmptyOne) {
  constexpr char kCall[] = "{{ messages[0].tool_calls[0].function | tojson }}";
  v1::Chat chat = Conversation("a");
  v1::ToolCall* const call = chat.mutable_messages(0)->add_tool_calls();
  for (const char* arguments : {"", "{\"a\": \"cut", "{\"a\": tru}", "null", "[]", "\"text\"", "1", "not JSON"}) {
    call->set_arguments(arguments);
    EXPECT_EQ(TextFor(kCall, chat), R"({"name": "", "arguments": {}})") << arguments;
  }
  call->set_arguments(std::string(100, '[') + std::string(100, ']'));
  EXPECT_EQ(TextFor(kCall, chat), R"({"name": "", "arguments": {}})") << "nested too deeply";
  std::string numbers = "0";
  for (int i = 0; i < 100'000; ++i) numbers += ",0";
  call->set_arguments("[" + numbers + "]");
  EXPECT_THAT(TextFor(kCall, chat), HasSubstr("arguments: has too many JSON values"));
}

TEST(ChatMessagesTest, APartIsAPartForATemplateThatTakesThem) {
  constexpr char kParts[] =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
      "({{ p.type }} {{ p.text }}){% endfor %}{% endif %}{% endfor %}";
  constexpr char kText[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
  v1::Chat chat;
  chat.add_messages()->set_role("user");
  for (const char* part : {"one ", "two"}) chat.mutable_messages(0)->add_content_parts(part);
  EXPECT_EQ(TextFor(kParts, chat), "(text one )(text two)");
  EXPECT_EQ(TextFor(kText, chat), "one two");
  chat.set_continue_final_message(true);
  EXPECT_EQ(TextFor(kParts, chat), "(text one )(text two");
  chat.mutable_messages(0)->set_content("three");
  EXPECT_EQ(TextFor(kText, chat), "chat.messages[0].content: cannot be combined with content_parts");
  chat.mutable_messages(0)->clear_content();
  for (int i = 0; i < 40'000; ++i) chat.mutable_messages(0)->add_content_parts("x");
  EXPECT_THAT(TextFor(kText, chat), HasSubstr("messages[0].content_parts: has too many parts"));
}

TEST(ChatMessagesTest, TheLastMessageCanBeContinued) {
  constexpr char kPlain[] = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
  constexpr char kTrimmed[] = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
  v1::Chat chat = Conversation("a");
  AddMessage("assistant", " I am a ", &chat);
  chat.set_continue_final_message(true);
  EXPECT_EQ(TextFor(kPlain, chat), "<a>< I am a ");
  EXPECT_EQ(TextFor(kTrimmed, chat), "<a><I am a");
  EXPECT_EQ(TextFor("{{ add_generation_prompt }}{{ messages[1].content }} x", chat), "False I am a ");
  EXPECT_EQ(TextFor("nothing", chat),
            "chat.continue_final_message: is set, but the chat template does not write the content of the last message "
            "as it is");
}

TEST(ChatMessagesTest, TheLastMessageIsCutWhereTheUserHasWrittenIt) {
  constexpr char kTurns[] = "{% for m in messages %}<begin>{{ m.content }}<end>{% endfor %}";
  v1::Chat chat = Conversation("a");
  AddMessage("assistant", "en", &chat);
  chat.set_continue_final_message(true);
  EXPECT_EQ(TextFor(kTurns, chat), "<begin>a<end><begin>en") << "the template writes these letters, too";
  chat.mutable_messages(1)->set_content(" \n");
  EXPECT_EQ(TextFor(kTurns, chat), "chat.continue_final_message: needs a last message with content");
}

// Otherwise a client could keep a text thread busy for minutes.
TEST(ChatMessagesTest, TheSearchForTheLastMessageIsShortForEveryText) {
  v1::Chat chat = Conversation(std::string(2'600'000, 'a'));
  AddMessage("assistant", std::string(1'300'000, 'a') + "b", &chat);
  chat.set_continue_final_message(true);
  ServiceHarness harness(ModelWith("{{ messages[0].content }}"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::RenderChatRequest request;
  *request.mutable_chat() = chat;
  v1::RenderChatResponse response;
  EXPECT_EQ(harness.stub->RenderChat(&context, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

constexpr char kByRole[] =
    "{% for m in messages %}{% if m.role == 'system' %}S({{ m.content | trim }}){% elif m.role == \"user\" %}"
    "U({{ m.content }}){% elif m.role == 'assistant' %}A({{ m.content }}){% elif m.role == 'critic' %}"
    "C({{ m.content }}){% endif %}{% endfor %}";

v1::Chat RoleAndUser(const std::string& role, const std::string& content) {
  v1::Chat chat;
  AddMessage(role, content, &chat);
  AddMessage("user", "hi", &chat);
  return chat;
}

TEST(ChatRolesTest, ATemplateThatDoesNotKnowDeveloperGetsSystem) {
  EXPECT_EQ(TextFor(kByRole, RoleAndUser("developer", "Be kind.")), "S(Be kind.)U(hi)");
  EXPECT_EQ(TextFor("{{ messages[0].role }}", RoleAndUser("developer", "Be kind.")), "system");
  EXPECT_EQ(
      TextFor("{{ messages[0].role == 'developer' }}{{ messages[0].content }}", RoleAndUser("developer", "Be kind.")),
      "TrueBe kind.");
}

TEST(ChatRolesTest, AMessageThatTheTemplateLeavesOutIsRefused) {
  const std::string refused =
      "chat.messages[0].role: is \"asistant\", and the chat template leaves the message out; it must be system, "
      "developer, user, assistant or tool, or another role that the template knows";
  EXPECT_EQ(TextFor(kByRole, RoleAndUser("asistant", "Be kind.")), refused);
  EXPECT_THAT(TextFor(kByRole, RoleAndUser("tool", "7")), HasSubstr("messages[0].role: is \"tool\", and"))
      << "this template knows no tools";
  EXPECT_THAT(TextFor("{% if messages[0].role != 'developer' %}a{% endif %}", RoleAndUser("developer", "b")),
              HasSubstr("messages[0].role: is \"developer\", and"));
  // A message that the template writes, or that has no text, is no error.
  EXPECT_EQ(TextFor(kByRole, RoleAndUser("critic", " Be kind. ")), "C( Be kind. )U(hi)");
  EXPECT_EQ(TextFor(kByRole, RoleAndUser("asistant", " ")), "U(hi)");
  EXPECT_EQ(TextFor("{{ 'tool' }}", RoleAndUser("tool", "7")), "tool") << "a template may write results in its own way";
}

TEST(ChatMessagesTest, ARefusalOfToolsNamesThem) {
  const std::string source =
      "{% if tools %}{{ raise_exception('no tools') }}{% endif %}"
      "{% if messages[0].role != 'user' %}{{ raise_exception('no such role') }}{% endif %}";
  v1::Chat chat = Conversation("a");
  chat.set_tools("[1]");
  EXPECT_THAT(TextFor(source, chat), testing::StartsWith("chat.tools: is refused by the chat template: line 1: "));
  chat.mutable_messages(0)->set_role("system");
  EXPECT_THAT(TextFor(source, chat), testing::StartsWith("chat: is refused by the chat template: line 1: "));
}

TEST(ChatMessagesTest, AConversationHasNotTooManyJsonValues) {
  v1::Chat chat = Conversation("a");
  std::string numbers = "[0";
  for (int i = 0; i < 60'000; ++i) numbers += ",0";
  numbers += "]";
  chat.set_tools(numbers);
  EXPECT_EQ(TextFor("{{ tools | length }}", chat), "60001");
  chat.set_template_kwargs("{\"x\":" + numbers + "}");
  EXPECT_EQ(TextFor("{{ tools | length }}", chat),
            "chat.template_kwargs: has too many JSON values: at most 100000 are allowed in all");
}

TEST(ChatModelTest, AModelWithoutAChatTemplateRefusesOnlyConversations) {
  auto model = ToyModel();
  model->chat_template = nullptr;
  ServiceHarness harness(model);
  const ServiceHarness::Result result = harness.Generate(ChatRequest(Conversation("hi")));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(result.status).reason(), "NO_CHAT_TEMPLATE");
  v1::GenerateRequest text;
  text.set_text("hi");
  EXPECT_TRUE(harness.Generate(text).status.ok());
}

TEST(ChatModelTest, ABrokenChatTemplateIsNamedAndCompletionsStillWork) {
  ServiceHarness harness(ModelWith("\n{% import 'x' as y %}"));
  const ServiceHarness::Result result = harness.Generate(ChatRequest(Conversation("hi")));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(result.status.error_message(), HasSubstr("cannot be used: chat_template.jinja: line 2: "));
  EXPECT_THAT(result.status.error_message(), HasSubstr("import"));
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(result.status).reason(), "BAD_CHAT_TEMPLATE");
  v1::GenerateRequest text;
  text.set_text("hi");
  EXPECT_TRUE(harness.Generate(text).status.ok());
  const v1::GetModelResponse response = harness.GetModel();
  EXPECT_FALSE(response.has_chat_template());
}

TEST(ChatModelTest, TheModelTellsHowItWritesCallsAndThoughts) {
  ServiceHarness harness(ModelWith("[TOOL_CALLS]</think>"));
  const v1::GetModelResponse response = harness.GetModel();
  EXPECT_EQ(response.tool_call_format(), "mistral");
  EXPECT_EQ(response.reasoning_format(), "think");
}

TEST(ChatModelTest, AModelWithoutATokenizerRefusesConversations) {
  auto model = ToyModel();
  model->tokenizer = nullptr;
  ServiceHarness harness(model);
  const ServiceHarness::Result result = harness.Generate(ChatRequest(Conversation("hi")));
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(result.status).reason(), "NO_TOKENIZER");
}

}  // namespace
}  // namespace quire
