// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_BEARER_TOKEN_H_
#define QUIRE_CLIENT_LIBRARY_BEARER_TOKEN_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// A longer token is refused before it is sent. A server of gRPC with its default limit closes the whole connection,
// with the calls of all others, when the headers of one call have more than 8 KiB.
inline constexpr size_t kMaxTokenBytes = 4096;

// Returns a bearer token as a header carries it, without the trailing white space that files and secrets often have.
// INVALID_ARGUMENT when it has more than kMaxTokenBytes, or a byte that is not printable ASCII. The message does not
// show the token.
absl::StatusOr<std::string> HeaderToken(absl::string_view token);

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_BEARER_TOKEN_H_
