// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_TLS_MISMATCH_H_
#define QUIRE_SECURITY_TLS_MISMATCH_H_

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace quire {

// Returns true if gRPC's message about a failed connection is one that comes when only one side speaks TLS, or when one
// side refuses the other's certificate. The message for a server that ends at that moment can be the same.
inline bool MayBeTlsMismatch(absl::string_view message) {
  constexpr absl::string_view kWords[] = {"Socket closed", "wrong version number", "ertificate", "erification"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [message](absl::string_view words) { return absl::StrContains(message, words); });
}

}  // namespace quire

#endif  // QUIRE_SECURITY_TLS_MISMATCH_H_
