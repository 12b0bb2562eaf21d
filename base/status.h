// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_STATUS_H_
#define QUIRE_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

// Returns from the enclosing function when `expr` is an error.
#define QUIRE_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                               \
    if (absl::Status quire_status = (expr); !quire_status.ok()) return quire_status; \
  } while (false)

// QUIRE_ASSIGN_OR_RETURN(auto x, F()) assigns the value of F(), or returns its error from the enclosing function.
#define QUIRE_ASSIGN_OR_RETURN(lhs, expr) QUIRE_ASSIGN_OR_RETURN_IMPL(QUIRE_CONCAT(quire_or_, __LINE__), lhs, expr)
#define QUIRE_ASSIGN_OR_RETURN_IMPL(name, lhs, expr) \
  auto name = (expr);                                \
  if (!name.ok()) return std::move(name).status();   \
  lhs = *std::move(name)
#define QUIRE_CONCAT(a, b) QUIRE_CONCAT_IMPL(a, b)
#define QUIRE_CONCAT_IMPL(a, b) a##b

namespace quire {

// Returns INVALID_ARGUMENT. The message is the concatenation of `parts`, as in absl::StrCat.
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace quire

#endif  // QUIRE_BASE_STATUS_H_
