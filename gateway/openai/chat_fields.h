// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_CHAT_FIELDS_H_
#define QUIRE_GATEWAY_OPENAI_CHAT_FIELDS_H_

#include <optional>
#include <string>
#include <vector>

#include "gateway/openai/field_reader.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Reads the fields that make a conversation: messages, tools, and how the chat template renders them. If this leaves no
// error, each of the tools has a function with a name that no other one has.
void ReadChatFields(FieldReader* fields, v1::Chat* chat);

// A variable of chat templates that a field of the request sets.
struct TemplateVariable {
  std::string name;
  std::string field;
  std::optional<std::string> value = std::nullopt;
};

// Sets the variables of the chat template: those of the field chat_template_kwargs, and `named`, such as the effort of
// reasoning, as in vLLM. Templates read those that they know. Leaves an error when a variable has two values.
void ReadTemplateVariables(const std::vector<TemplateVariable>& named, FieldReader* fields, v1::Chat* chat);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_CHAT_FIELDS_H_
