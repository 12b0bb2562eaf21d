// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_NEAREST_FLAG_H_
#define QUIRE_BASE_NEAREST_FLAG_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

// Returns the flag in `known` that a user has probably meant who has typed `typed`, which is not in it: the flag for
// the same thing if `typed` is its name in another program, or else the one with the nearest name (NearestName).
// Returns "" when there is none. Every way to write a flag will do: --manager-tls-ca, manager_tls_ca and
// MANAGER_TLS_CA.
std::string NearestFlag(absl::string_view typed, const std::vector<std::string>& known);

}  // namespace quire

#endif  // QUIRE_BASE_NEAREST_FLAG_H_
