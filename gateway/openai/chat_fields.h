// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_CHAT_FIELDS_H_
#define QUIRE_GATEWAY_OPENAI_CHAT_FIELDS_H_

#include "gateway/openai/field_reader.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Reads the fields that make a conversation: messages, tools, and how the chat template renders them. If this leaves no
// error, each of the tools has a function with a name that no other one has.
void ReadChatFields(FieldReader* fields, v1::Chat* chat);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_CHAT_FIELDS_H_
