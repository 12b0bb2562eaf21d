// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_ANTHROPIC_MESSAGE_CALL_H_
#define QUIRE_GATEWAY_ANTHROPIC_MESSAGE_CALL_H_

#include <string>
#include <variant>

#include "gateway/openai/api_error.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/generate_call.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// These functions translate the body of a request into one call of a chat. They check every type, and refuse what is
// not supported by its name. The manager checks the ranges of most values.
std::variant<GenerateCall, ApiError> ReadMessageCall(const Json& body, UnknownFields unknown = UnknownFields::kRefuse);

// The same for /v1/messages/count_tokens, where max_tokens may be missing.
std::variant<GenerateCall, ApiError> ReadCountTokensCall(const Json& body,
                                                         UnknownFields unknown = UnknownFields::kRefuse);

// The answer of /v1/messages/count_tokens.
std::string CountTokensBody(const v1::RenderChatResponse& prompt);

}  // namespace quire

#endif  // QUIRE_GATEWAY_ANTHROPIC_MESSAGE_CALL_H_
