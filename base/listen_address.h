// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LISTEN_ADDRESS_H_
#define QUIRE_BASE_LISTEN_ADDRESS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// A server listens at host:port, at [host]:port for IPv6, or at unix:path. The port is 0 to kMaxListenPort; 0 asks for
// a free one.
inline constexpr int kMaxListenPort = 65535;
inline constexpr absl::string_view kUnixPrefix = "unix:";

// Returns whether `address` has one of these forms. This looks nothing up.
bool IsListenAddress(absl::string_view address);
// Returns whether only the port is wrong, as in "127.0.0.1:70000".
bool HasBadPort(absl::string_view address);

// The host and the port of an address host:port. An IPv6 address has no brackets here.
struct HostPort {
  std::string host;
  std::string port;
};

// Returns nothing when `address` is not host:port.
std::optional<HostPort> SplitHostPort(absl::string_view address);

// Replaces the port: "127.0.0.1:0" and 41234 give "127.0.0.1:41234". A unix address has no port and stays as it is.
std::string WithPort(const std::string& address, int port);

// Returns the address of a rank of a group, given that of rank 0, which is host:port or unix:path: the port is greater
// by the rank, or the path has ".rank" at its end.
std::string RankAddress(const std::string& address, int rank);

}  // namespace quire

#endif  // QUIRE_BASE_LISTEN_ADDRESS_H_
