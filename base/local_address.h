#ifndef QUIRE_BASE_LOCAL_ADDRESS_H_
#define QUIRE_BASE_LOCAL_ADDRESS_H_

#include "absl/strings/string_view.h"

namespace quire {

// Whether what is sent to `address`, or arrives at it, stays on this machine: a unix socket, or a port of localhost,
// 127.0.0.0/8 or [::1]. gRPC's prefixes (dns:///, ipv4:) may stand before it. Nothing is looked up: another name that
// means this machine does not count.
bool IsLocalAddress(absl::string_view address);

}  // namespace quire

#endif  // QUIRE_BASE_LOCAL_ADDRESS_H_
