// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_ERROR_BODY_H_
#define QUIRE_GATEWAY_WEB_ERROR_BODY_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Returns the body of an error as the OpenAI interface has it: {"error": {"message", "type", "param", "code"}}. Without
// a value, param and code are null.
std::string ErrorBody(absl::string_view message, absl::string_view type, const std::optional<std::string>& param,
                      const std::optional<std::string>& code);

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_ERROR_BODY_H_
