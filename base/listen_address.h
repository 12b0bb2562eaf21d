#ifndef QUIRE_BASE_LISTEN_ADDRESS_H_
#define QUIRE_BASE_LISTEN_ADDRESS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Where a server listens: host:port with a port of 0 (take a free one) to 65535, [host]:port for IPv6, or unix:path.

// Whether `address` has one of these forms. Nothing is looked up.
bool IsListenAddress(absl::string_view address);

// "127.0.0.1:0" and 41234 give "127.0.0.1:41234". A unix address has no port and stays as it is.
std::string WithPort(const std::string& address, int port);

// Whether somebody listens on this address; false when it is not unix:path. gRPC itself replaces the file of a unix
// socket even when a live server listens on it.
bool IsUnixSocketInUse(const std::string& address);

// Why nobody can listen on `address` now, for people: "it is in use", "127.0.0.9 is not an address of this machine".
// Empty when one could. Servers say only that they failed; this tries with plain sockets.
std::string WhyNotListening(const std::string& address);

}  // namespace quire

#endif  // QUIRE_BASE_LISTEN_ADDRESS_H_
