// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_ADDRESS_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_ADDRESS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/listen_address.h"

namespace quire {

// A worker has an address: host:port, [host]:port for IPv6, unix:path, or dns:///name:port for all addresses of a name.
// The prefix of unix:path is kUnixPrefix.
inline constexpr absl::string_view kDnsPrefix = "dns:///";

// INVALID_ARGUMENT, "'b:0' has port '0', it must be 1 .. 65535", when `address` has none of these forms. Nothing is
// looked up.
absl::Status CheckWorkerAddress(absl::string_view address);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WORKER_ADDRESS_H_
