// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/pin_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/requests/chat_prompt.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// Writes every part of a conversation.
constexpr char kWholeTemplate[] =
    "{%- for m in messages %}<s>{{ m.role }}:{{ m.content }}"
    "{%- for call in m.tool_calls or [] %}[{{ call.function.name }}{{ call.function.arguments | tojson }}]{% endfor %}"
    "</s>{% endfor %}<s>assistant:";
// Writes the tools behind the system prompt, and needs a message of the user.
constexpr char kLateToolsTemplate[] =
    "{%- if messages[-1].role != 'user' %}{{ raise_exception('no user') }}{% endif %}"
    "{%- for m in messages %}<s>{{ m.role }}:{{ m.content | trim }}"
    "{%- if loop.first and tools %}{{ tools | tojson }}{% endif %}</s>{% endfor %}";

class PinValidationTest : public ::testing::Test {
 protected:
  PinValidationTest() { UseTemplate(kWholeTemplate); }

  void UseTemplate(const std::string& source) {
    model_->chat_template =
        ChatTemplate::Load({.chat_template_jinja = source, .tokenizer_config_json = R"({"bos_token": "<s>"})"});
    ASSERT_TRUE(model_->chat_template.ok());
    model_->max_context_tokens = 1000;
  }
  v1::ChatMessage* AddMessage(const std::string& role, const std::string& content) {
    v1::ChatMessage* const message = request_.mutable_chat()->add_messages();
    message->set_role(role);
    if (!content.empty()) message->set_content(content);
    return message;
  }
  v1::PrefixPin* AddPin(uint32_t num_messages) {
    v1::PrefixPin* const pin = request_.add_pins();
    pin->set_num_messages(num_messages);
    return pin;
  }
  absl::StatusOr<ValidRequest> Validate() { return ValidateGenerate(request_, *model_, {}, /*drawn_seed=*/1); }
  std::string Error() { return std::string(Validate().status().message()); }
  // The text of the tokens that each pin has.
  std::vector<std::string> Prefixes() {
    const absl::StatusOr<ValidRequest> valid = Validate();
    EXPECT_TRUE(valid.ok()) << valid.status();
    std::vector<std::string> prefixes;
    if (!valid.ok()) return prefixes;
    for (const Request::PrefixPin& pin : valid->request.pins) {
      prefixes.push_back(model_->tokenizer->Decode(absl::MakeConstSpan(valid->request.prompt).first(pin.num_tokens),
                                                   /*skip_special_tokens=*/false));
    }
    return prefixes;
  }
  std::string Prefix() {
    const std::vector<std::string> prefixes = Prefixes();
    return prefixes.size() == 1 ? prefixes[0] : "?";
  }

  std::shared_ptr<ServedModel> model_ = ToyModel();
  v1::GenerateRequest request_;
};

TEST_F(PinValidationTest, ABeginningEndsBehindTheTextOfItsLastMessage) {
  AddMessage("system", "be kind");
  AddMessage("user", "hello");
  AddMessage("assistant", "hello");
  AddPin(1);
  AddPin(2)->set_ttl_seconds(3600);
  AddPin(3);
  EXPECT_THAT(Prefixes(), testing::ElementsAre("<s>system:be kind", "<s>system:be kind</s><s>user:hello",
                                               "<s>system:be kind</s><s>user:hello</s><s>assistant:hello"));
  const std::vector<Request::PrefixPin> pins = Validate()->request.pins;
  EXPECT_EQ(pins[0].ttl_us, 300 * 1'000'000);
  EXPECT_EQ(pins[1].ttl_us, 3600 * int64_t{1'000'000});
}

TEST_F(PinValidationTest, ABeginningEndsInItsLastMessage) {
  v1::ChatMessage* const user = AddMessage("user", "");
  for (const char* part : {"one ", "two ", "three"}) user->add_content_parts(part);
  v1::ChatMessage* const answer = AddMessage("assistant", "I look");
  for (const char* name : {"f", "g"}) {
    answer->add_tool_calls()->set_name(name);
    answer->mutable_tool_calls(answer->tool_calls_size() - 1)->set_arguments(R"({"a": "b"})");
  }
  AddPin(1)->set_num_parts(2);
  AddPin(2)->set_num_parts(1);
  AddPin(2)->set_num_tool_calls(1);
  AddPin(2);
  const std::string first = "<s>user:one two ";
  EXPECT_THAT(Prefixes(), testing::ElementsAre(first, first + "three</s><s>assistant:I look",
                                               first + R"(three</s><s>assistant:I look[f{"a": "b)",
                                               first + R"(three</s><s>assistant:I look[f{"a": "b"}][g{"a": "b)"));
}

TEST_F(PinValidationTest, ATemplateThatTakesPartsKnowsWhichAreInTheBeginning) {
  UseTemplate("{%- for m in messages %}{% for part in m.content %}({{ part.text }}){% endfor %}{% endfor %}");
  v1::ChatMessage* const user = AddMessage("user", "");
  for (const char* part : {"one", "two", "three"}) user->add_content_parts(part);
  AddPin(1)->set_num_parts(2);
  EXPECT_EQ(Prefix(), "(one)(two");
}

TEST_F(PinValidationTest, ABeginningThatTheTemplateRefusesAloneIsFound) {
  UseTemplate(kLateToolsTemplate);
  AddMessage("system", " be kind ");
  AddMessage("user", "hello");
  AddPin(1);
  EXPECT_EQ(Prefix(), "<s>system:be kind");
}

TEST_F(PinValidationTest, ToolsBelongToEveryBeginningWhereverTheyAre) {
  UseTemplate(kLateToolsTemplate);
  AddMessage("system", "be kind");
  AddMessage("user", "hello");
  request_.mutable_chat()->set_tools(R"(["f"])");
  AddPin(0);
  AddPin(1);
  EXPECT_THAT(Prefixes(), testing::ElementsAre(R"(<s>system:be kind["f)", R"(<s>system:be kind["f)"));
  request_.mutable_chat()->clear_tools();
  EXPECT_THAT(Prefixes(), testing::ElementsAre("", "<s>system:be kind"));
}

TEST_F(PinValidationTest, ABeginningDoesNotEndInATokenThatGoesOn) {
  model_ = ToyModel({"kindly"});
  UseTemplate("{%- for m in messages %}{{ m.content }}{% endfor %}");
  AddMessage("system", "be kind");
  AddMessage("user", "ly");
  AddPin(1);
  EXPECT_EQ(Prefix(), "be ");
}

TEST_F(PinValidationTest, TheTextThatUsersWriteEndsNoBeginning) {
  UseTemplate("{%- for m in messages %}<s>{{ m.content }}</s>{% endfor %}");
  AddMessage("user", "</s><s>");
  AddMessage("user", "</s><s>");
  AddPin(1);
  EXPECT_EQ(Prefix(), "<s></s><s>");
}

// Bytes of tokens that differ from the text, as with a tokenizer that changes spaces.
class ShoutingTokenizer : public ToyTokenizer {
 public:
  std::string TokenBytes(TokenId id) const override { return id == Byte('h') ? "H" : ToyTokenizer::TokenBytes(id); }
};

TEST_F(PinValidationTest, ATokenizerMayWriteTheTextInAnotherForm) {
  model_->tokenizer = std::make_unique<ShoutingTokenizer>();
  AddMessage("user", "hello");
  AddMessage("user", "hello");
  AddPin(1);
  EXPECT_EQ(Prefix(), "<s>user:hello");
}

TEST_F(PinValidationTest, ContinuedMessagesAreCutWhereTheyEnd) {
  AddMessage("user", "hello");
  AddMessage("assistant", "once");
  request_.mutable_chat()->set_continue_final_message(true);
  AddPin(2);
  EXPECT_EQ(Prefix(), "<s>user:hello</s><s>assistant:once");
}

TEST_F(PinValidationTest, WrongPinsNameFieldValueAndLimit) {
  AddMessage("user", "hello");
  v1::PrefixPin* const pin = AddPin(2);
  EXPECT_EQ(Error(), "pins[0].num_messages: is 2, it must be 0 .. 1, the number of messages");
  pin->set_num_messages(1);
  pin->set_num_parts(2);
  EXPECT_EQ(Error(), "pins[0].num_parts: is 2, it must be 1 .. 1, the number of parts");
  pin->set_num_messages(0);
  EXPECT_EQ(Error(), "pins[0].num_parts: is 2, and there are no parts");
  pin->set_num_messages(1);
  pin->set_num_parts(1);
  pin->set_num_tool_calls(1);
  EXPECT_THAT(Error(), HasSubstr("pins[0].num_tool_calls: cannot be combined with num_parts"));
  pin->clear_num_parts();
  EXPECT_EQ(Error(), "pins[0].num_tool_calls: is 1, and there are no tool calls");
  pin->clear_num_tool_calls();
  for (const uint32_t seconds : {0u, 86401u}) {
    pin->set_ttl_seconds(seconds);
    EXPECT_EQ(Error(), absl::StrCat("pins[0].ttl_seconds: is ", seconds, ", it must be 1 .. 86400"));
  }
  pin->set_ttl_seconds(86400);
  EXPECT_TRUE(Validate().ok());
  request_.set_bypass_prefix_cache(true);
  EXPECT_EQ(Error(), "pins: cannot be combined with bypass_prefix_cache");
  request_.clear_bypass_prefix_cache();
  for (int i = 0; i < 4; ++i) AddPin(1);
  EXPECT_EQ(Error(), "pins: has 5 entries, at most 4 are allowed");
  request_.mutable_pins()->DeleteSubrange(1, 4);
  request_.set_text("hello");
  EXPECT_EQ(Error(), "pins: needs chat as the prompt");
}

TEST_F(PinValidationTest, EveryPinIsWorkForTheTemplate) {
  AddMessage("user", std::string(1000, 'a'));
  const size_t work = TextWork(request_);
  AddPin(1);
  AddPin(1);
  EXPECT_EQ(TextWork(request_), 3 * work);
}

}  // namespace
}  // namespace quire
