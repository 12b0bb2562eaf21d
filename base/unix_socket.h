#ifndef QUIRE_BASE_UNIX_SOCKET_H_
#define QUIRE_BASE_UNIX_SOCKET_H_

#include <string>

namespace quire {

// Whether somebody listens on this gRPC address; false when it is not unix:path. gRPC itself replaces the file of a
// unix socket even when a live server listens on it.
bool IsUnixSocketInUse(const std::string& address);

}  // namespace quire

#endif  // QUIRE_BASE_UNIX_SOCKET_H_
