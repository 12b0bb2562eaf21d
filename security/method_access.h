#ifndef QUIRE_SECURITY_METHOD_ACCESS_H_
#define QUIRE_SECURITY_METHOD_ACCESS_H_

#include <optional>

#include "absl/strings/string_view.h"

namespace quire {

// Who may call a method.
enum class Access {
  kAnyone,   // Whoever may connect.
  kTenant,   // Who may use the model; sees and ends nothing but its own requests.
  kAdmin,    // Operators.
  kManager,  // A worker's manager.
};

// That of the method at "/package.Service/Method"; nothing for a method without an entry, which nobody may call.
std::optional<Access> MethodAccess(absl::string_view path);

}  // namespace quire

#endif  // QUIRE_SECURITY_METHOD_ACCESS_H_
