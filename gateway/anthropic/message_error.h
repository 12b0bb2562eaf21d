// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_ANTHROPIC_MESSAGE_ERROR_H_
#define QUIRE_GATEWAY_ANTHROPIC_MESSAGE_ERROR_H_

#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/api_error.h"

namespace quire {

// Returns whether errors of this path have the form of Anthropic's interface: that of /v1/messages, and those below it.
bool IsMessagePath(absl::string_view path);

// Returns the HTTP code of an error in Anthropic's interface. A server that has no room now answers with 529.
int MessageErrorCode(const ApiError& error);

// Returns {"type": "error", "error": {"type", "message"}, "request_id"}. `request_id` is the name of the HTTP request;
// it is null if it is empty.
std::string MessageErrorBody(const ApiError& error, const std::string& request_id);

}  // namespace quire

#endif  // QUIRE_GATEWAY_ANTHROPIC_MESSAGE_ERROR_H_
