// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_RESPONSES_THOUGHTS_TOKEN_H_
#define QUIRE_GATEWAY_RESPONSES_THOUGHTS_TOKEN_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Returns thoughts in the form of `encrypted_content`. Some clients give nothing else of their thoughts back. It is not
// encrypted, because the client has the same text in `content`.
std::string ThoughtsToken(absl::string_view thoughts);

// Returns the thoughts of a token. Returns nothing if it is not from ThoughtsToken.
std::optional<std::string> ThoughtsOfToken(absl::string_view token);

}  // namespace quire

#endif  // QUIRE_GATEWAY_RESPONSES_THOUGHTS_TOKEN_H_
