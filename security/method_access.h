// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_METHOD_ACCESS_H_
#define QUIRE_SECURITY_METHOD_ACCESS_H_

#include <optional>

#include "absl/strings/string_view.h"

namespace quire {

// Who may call a method.
enum class Access {
  kAnyone,   // Everybody who can connect.
  kTenant,   // Tenants and operators. A tenant sees and ends only its own requests.
  kAdmin,    // Operators only.
  kManager,  // The manager of a worker.
};

// Returns who may call the method at "/package.Service/Method", or nothing for an unknown method, which nobody may
// call.
std::optional<Access> MethodAccess(absl::string_view path);

}  // namespace quire

#endif  // QUIRE_SECURITY_METHOD_ACCESS_H_
