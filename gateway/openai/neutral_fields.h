// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_NEUTRAL_FIELDS_H_
#define QUIRE_GATEWAY_OPENAI_NEUTRAL_FIELDS_H_

#include "gateway/openai/field_reader.h"

namespace quire {

// Reads the fields of OpenAI, vLLM, llama.cpp and SGLang that this server does not support. Clients send many of them
// with the value that is their default, which asks for nothing, so this value is accepted. Any other one leaves an
// error with the reason.
void ReadNeutralFields(bool is_chat, FieldReader* fields);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_NEUTRAL_FIELDS_H_
