// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_TLS_MISMATCH_H_
#define QUIRE_SECURITY_TLS_MISMATCH_H_

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace quire {

// Returns true if gRPC's message says that a connection failed because only one side speaks TLS, or because one side
// refuses the other's certificate. A server that ends at that moment can cause the same message. A connection that is
// lost later has another message.
inline bool MayBeTlsMismatch(absl::string_view message) {
  if (!absl::StrContains(message, "failed to connect")) return false;
  constexpr absl::string_view kWords[] = {"Socket closed", "wrong version number", "ertificate", "erification"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [message](absl::string_view words) { return absl::StrContains(message, words); });
}

}  // namespace quire

#endif  // QUIRE_SECURITY_TLS_MISMATCH_H_
