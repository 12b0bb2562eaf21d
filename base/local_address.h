// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LOCAL_ADDRESS_H_
#define QUIRE_BASE_LOCAL_ADDRESS_H_

#include "absl/strings/string_view.h"

namespace quire {

// Returns whether traffic at `address` stays on this machine. That is true for a unix socket and for a port of
// localhost, 127.0.0.0/8 or [::1]. The address may have one of gRPC's prefixes, such as dns:/// or ipv4:. This looks
// nothing up, so another name of this machine is not local.
bool IsLocalAddress(absl::string_view address);

}  // namespace quire

#endif  // QUIRE_BASE_LOCAL_ADDRESS_H_
