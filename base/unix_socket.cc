#include "base/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace quire {

bool IsUnixSocketInUse(const std::string& address) {
  absl::string_view path = address;
  sockaddr_un target{};
  if (!absl::ConsumePrefix(&path, "unix:") || path.size() >= sizeof(target.sun_path)) return false;
  target.sun_family = AF_UNIX;
  std::memcpy(target.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  const bool in_use = fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0;
  if (fd >= 0) close(fd);
  return in_use;
}

}  // namespace quire
