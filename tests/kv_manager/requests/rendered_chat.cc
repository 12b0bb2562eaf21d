// SPDX-License-Identifier: Apache-2.0

#include "tests/kv_manager/requests/rendered_chat.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kv_manager/requests/chat_prompt.h"

namespace quire {

std::unique_ptr<ServedModel> ModelWithTemplate(const std::string& source) {
  const bool has_date = absl::StrContains(source, "strftime_now(");
  const std::string dated =
      absl::StrCat(has_date ? "{%- macro strftime_now(format) -%}04 Jul 2026{%- endmacro -%}" : "", source);
  auto model = std::make_unique<ServedModel>();
  model->chat_template = ChatTemplate::Load(
      {.chat_template_jinja = dated, .tokenizer_config_json = R"({"bos_token": "<s>", "eos_token": "</s>"})"});
  return model;
}

absl::StatusOr<std::string> RenderedChat(const v1::Chat& chat, const ServedModel& model) {
  FieldErrors errors;
  const absl::StatusOr<jinja::Text> text = RenderChat(chat, model, size_t{1} << 20, "chat", &errors);
  if (!text.ok()) return text.status();
  for (const FieldError& error : errors.kept()) {
    return absl::InvalidArgumentError(absl::StrCat(error.field, ": ", error.description));
  }
  return text->bytes;
}

}  // namespace quire
