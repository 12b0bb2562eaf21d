// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "kv_manager/requests/chat_prompt.h"
#include "quire/v1/inference.pb.h"
#include "tests/fuzz/message_input.h"

namespace quire {
namespace {

constexpr size_t kMaxBytes = 16 << 10;
constexpr std::string_view kBegin = "<|im_start|>";

// A template like the templates of models: roles, tools, calls of tools, reasoning, further variables. It writes kBegin
// once for each message, and once for the answer.
constexpr std::string_view kTemplate =
    R"({%- set ns = namespace(last='') %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if loop.first and tools %}{{ tools | tojson }}{% endif %}
{%- if message.reasoning_content is defined and message.reasoning_content is string %}
{{- '<think>' + message.reasoning_content.strip() + '</think>' }}
{%- endif %}
{%- if message.content is string %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- call.type + ' ' + call.function.name + ' ' + call.function.arguments | tojson }}
{%- for key, value in call.function.arguments | items %}{{ key | upper }}={{ value | string | trim }} {% endfor %}
{%- endfor %}
{%- set ns.last = message.role %}
{{- (message.name or '') ~ (message.tool_call_id or '') }}<|im_end|>
{% endfor %}
{%- if thinking is defined %}{{ thinking }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

const ServedModel& Toy() {
  static const ServedModel* const model = [] {
    auto* const toy = new ServedModel;
    toy->name = "toy";
    toy->chat_template = ChatTemplate::Load({.chat_template_jinja = kTemplate});
    QUIRE_CHECK(toy->chat_template.ok()) << toy->chat_template.status();
    return toy;
  }();
  return *model;
}

// How often the template has written kBegin: those that a user has written are marked as such.
int CountBegins(const jinja::Text& text) {
  int count = 0;
  for (size_t at = text.bytes.find(kBegin); at != std::string::npos; at = text.bytes.find(kBegin, at + 1)) {
    bool is_of_user = false;
    for (const jinja::Range& range : text.user) is_of_user |= range.begin < at + kBegin.size() && range.end > at;
    count += !is_of_user;
  }
  return count;
}

// A conversation is refused with messages in UTF-8, or it becomes a prompt within the limits, in which no text of a
// user counts as text of the template.
void Render(const v1::Chat& chat) {
  FieldErrors errors;
  const auto text = RenderChat(chat, Toy(), kMaxBytes, "chat", &errors);
  QUIRE_CHECK(text.ok()) << text.status();
  for (const FieldError& error : errors.kept()) {
    QUIRE_CHECK(!error.description.empty() && CheckUtf8(error.description, "description").ok()) << error.description;
  }
  if (!errors.empty()) {
    QUIRE_CHECK(text->bytes.empty());
    return;
  }
  QUIRE_CHECK_LE(text->bytes.size(), kMaxBytes);
  QUIRE_CHECK(CheckUtf8(text->bytes, "text").ok()) << text->bytes;
  size_t end = 0;
  for (const jinja::Range& range : text->user) {
    QUIRE_CHECK(range.begin < range.end && (end == 0 || range.begin > end) && range.end <= text->bytes.size());
    end = range.end;
  }
  const bool has_answer = chat.has_add_generation_prompt() ? chat.add_generation_prompt() : true;
  const int most = chat.messages_size() + (has_answer ? 1 : 0);
  const int count = CountBegins(*text);
  // A final message that is continued may cut the text behind an earlier place with the same content.
  QUIRE_CHECK(chat.continue_final_message() ? count <= most : count == most) << text->bytes;
}

}  // namespace
}  // namespace quire

QUIRE_FUZZ_MESSAGES(quire::v1::Chat, quire::Render);
