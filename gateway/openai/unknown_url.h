// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_UNKNOWN_URL_H_
#define QUIRE_GATEWAY_OPENAI_UNKNOWN_URL_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/api_error.h"

namespace quire {

// The error for a path that this server does not have. Clients have a base URL, to which they add paths, so a wrong one
// has lost the "/v1" of a path of `known` or has something before it; then the message names the right one. For a path
// of other servers, the message says what this server does not have, and what to use instead.
ApiError UnknownUrl(absl::string_view path, const std::vector<absl::string_view>& known);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_UNKNOWN_URL_H_
