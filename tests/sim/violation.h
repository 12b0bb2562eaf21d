// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_VIOLATION_H_
#define QUIRE_TESTS_SIM_VIOLATION_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire {

// The error of a contradiction between the manager and what the simulator knows.
template <typename... Parts>
absl::Status Violation(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_VIOLATION_H_
