// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_RESPONSES_RESPONSE_CALL_H_
#define QUIRE_GATEWAY_RESPONSES_RESPONSE_CALL_H_

#include <variant>

#include "gateway/openai/api_error.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/generate_call.h"

namespace quire {

// Translates the body of a request to /v1/responses into one call of a chat. Checks every type, and refuses what is not
// supported by its name. The manager checks the ranges of most values.
std::variant<GenerateCall, ApiError> ReadResponseCall(const Json& body, UnknownFields unknown = UnknownFields::kRefuse);

}  // namespace quire

#endif  // QUIRE_GATEWAY_RESPONSES_RESPONSE_CALL_H_
