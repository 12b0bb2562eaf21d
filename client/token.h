#ifndef QUIRE_CLIENT_TOKEN_H_
#define QUIRE_CLIENT_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// A bearer token as a header carries it: without the white space behind it, which files and secrets end with.
// INVALID_ARGUMENT when it has a byte that is not printable ASCII; the message does not show the token.
absl::StatusOr<std::string> HeaderToken(absl::string_view token);

}  // namespace quire

#endif  // QUIRE_CLIENT_TOKEN_H_
