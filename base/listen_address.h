#ifndef QUIRE_BASE_LISTEN_ADDRESS_H_
#define QUIRE_BASE_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quire {

// A server listens at host:port, at [host]:port for IPv6, or at unix:path. The port is 0 to kMaxListenPort; 0 asks for
// a free one.
inline constexpr int kMaxListenPort = 65535;

// Whether `address` has one of these forms. This looks nothing up.
bool IsListenAddress(absl::string_view address);
// Whether only the port is wrong, as in "127.0.0.1:70000".
bool HasBadPort(absl::string_view address);

// Replaces the port: "127.0.0.1:0" and 41234 give "127.0.0.1:41234". A unix address has no port and stays as it is.
std::string WithPort(const std::string& address, int port);

// Whether a server listens at this unix:path. False for all other addresses. Callers check it because gRPC replaces the
// file of a unix socket even when a live server listens there.
bool IsUnixSocketInUse(const std::string& address);

// Tries with plain sockets whether a server could listen at `address` now. Returns UNAVAILABLE with the reason when it
// could not, for example "it is in use" or "127.0.0.9 is not an address of this machine". The libraries of servers say
// only that they failed.
absl::Status CheckListening(const std::string& address);

}  // namespace quire

#endif  // QUIRE_BASE_LISTEN_ADDRESS_H_
