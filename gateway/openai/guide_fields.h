// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_GUIDE_FIELDS_H_
#define QUIRE_GATEWAY_OPENAI_GUIDE_FIELDS_H_

#include "gateway/openai/field_reader.h"
#include "gateway/openai/generate_call.h"

namespace quire {

// Reads what the output must be into request->guided: response_format, and structured_outputs and the older
// guided_json, guided_regex, guided_choice and guided_grammar of vLLM. Leaves an error when two of them say
// different things. The manager checks the guide itself; call->names gets the field that its errors are about.
void ReadGuideFields(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call);

// Reads the field `format` of `text`, which the Responses interface has in place of response_format.
void ReadTextFormat(FieldReader* text, v1::GenerateRequest* request, GenerateCall* call);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_GUIDE_FIELDS_H_
