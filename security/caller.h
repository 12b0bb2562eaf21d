#ifndef QUIRE_SECURITY_CALLER_H_
#define QUIRE_SECURITY_CALLER_H_

#include <string>

namespace quire {

// The identity of whoever makes a call.
struct Caller {
  std::string tenant;
  bool is_admin = false;  // Whether the caller may call the methods for operators.

  bool operator==(const Caller&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SECURITY_CALLER_H_
