// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_CALLER_H_
#define QUIRE_SECURITY_CALLER_H_

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace quire {

// Largest length of the name of a tenant, which has visible ASCII characters only and may be empty.
inline constexpr size_t kMaxTenantBytes = 128;
inline bool IsTenantName(absl::string_view name) {
  return name.size() <= kMaxTenantBytes && std::all_of(name.begin(), name.end(), absl::ascii_isgraph);
}

// The identity of whoever makes a call.
struct Caller {
  std::string tenant;
  bool is_admin = false;  // Whether the caller may call the methods for operators.

  bool operator==(const Caller&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SECURITY_CALLER_H_
