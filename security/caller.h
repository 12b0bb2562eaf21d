#ifndef QUIRE_SECURITY_CALLER_H_
#define QUIRE_SECURITY_CALLER_H_

#include <string>

namespace quire {

// Who makes a call.
struct Caller {
  std::string tenant;
  bool is_admin = false;  // May call the methods for operators.

  bool operator==(const Caller&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SECURITY_CALLER_H_
