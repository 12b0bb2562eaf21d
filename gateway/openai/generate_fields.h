// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_GENERATE_FIELDS_H_
#define QUIRE_GATEWAY_OPENAI_GENERATE_FIELDS_H_

#include <cstdint>

#include "gateway/openai/field_reader.h"
#include "gateway/openai/generate_call.h"

namespace quire {

// The manager allows no more alternatives of a token.
inline constexpr uint32_t kMaxAlternatives = 20;

// Reads the numbers of sampling and the seed.
void ReadSamplingNumbers(FieldReader* fields, v1::SamplingParams* sampling);

// Reads the fields that completions and chats have in common, except the prompt, into `request` and `call`.
void ReadGenerateFields(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_GENERATE_FIELDS_H_
