// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_BEARER_TOKEN_H_
#define QUIRE_CLIENT_LIBRARY_BEARER_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// Returns a bearer token as a header carries it, without the trailing white space that files and secrets often have.
// INVALID_ARGUMENT when it has a byte that is not printable ASCII. The message does not show the token.
absl::StatusOr<std::string> HeaderToken(absl::string_view token);

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_BEARER_TOKEN_H_
