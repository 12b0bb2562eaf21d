// SPDX-License-Identifier: Apache-2.0

#include "base/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/listen_address.h"
#include "base/status.h"

namespace quire {
namespace {

// The kernel lowers it to net.core.somaxconn.
constexpr int kBacklog = 4096;

// Returns false when the path is empty or longer than the name of a socket can be.
bool MakeUnixName(const std::string& path, sockaddr_un* name) {
  *name = {};
  name->sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name->sun_path)) return false;
  std::memcpy(name->sun_path, path.data(), path.size());
  return true;
}

bool IsInUse(const sockaddr_un& name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  // A server whose backlog is full answers EAGAIN.
  const bool answers = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 || errno == EAGAIN;
  close(fd);
  return answers;
}

// Returns a listening socket, or -1 with errno.
int OpenSocket(const sockaddr* name, socklen_t size, bool with_ipv4) {
  const int fd = socket(name->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int only_ipv6 = with_ipv4 ? 0 : 1;
  // A connection that has just ended does not count as use of the port.
  if (name->sa_family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (name->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof(only_ipv6));
  if (bind(fd, name, size) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

void SetPort(sockaddr* name, int port) {
  const in_port_t value = htons(static_cast<uint16_t>(port));
  if (name->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(name)->sin6_port = value;
  } else {
    reinterpret_cast<sockaddr_in*>(name)->sin_port = value;
  }
}

}  // namespace

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const std::string& address) {
  ListeningSockets sockets;
  sockets.address_ = address;
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, kUnixPrefix)) {
    QUIRE_RETURN_IF_ERROR(sockets.OpenUnix(std::string(path)));
    return sockets;
  }
  const std::optional<HostPort> split = SplitHostPort(address);
  if (!split) return absl::UnavailableError("it is not host:port or unix:path");
  QUIRE_RETURN_IF_ERROR(sockets.OpenTcp(split->host, split->port));
  sockets.address_ = WithPort(address, sockets.port_);
  return sockets;
}

ListeningSockets& ListeningSockets::operator=(ListeningSockets&& other) noexcept {
  if (this == &other) return *this;
  Close();
  fds_ = std::exchange(other.fds_, {});
  path_ = std::exchange(other.path_, {});
  address_ = other.address_;
  port_ = other.port_;
  path_device_ = other.path_device_;
  path_inode_ = other.path_inode_;
  return *this;
}

void ListeningSockets::Close() {
  for (const int fd : fds_) close(fd);
  fds_.clear();
  struct stat file;
  const bool is_ours =
      !path_.empty() && lstat(path_.c_str(), &file) == 0 && file.st_dev == path_device_ && file.st_ino == path_inode_;
  if (is_ours) unlink(path_.c_str());
  path_.clear();
}

absl::Status ListeningSockets::OpenUnix(const std::string& path) {
  sockaddr_un name;
  if (!MakeUnixName(path, &name)) {
    return absl::UnavailableError(
        absl::StrCat("the path has ", path.size(), " characters, it must have 1 to ", sizeof(name.sun_path) - 1));
  }
  if (IsInUse(name)) return absl::UnavailableError(kAddressInUse);
  struct stat file;
  if (lstat(path.c_str(), &file) == 0 && S_ISSOCK(file.st_mode)) unlink(path.c_str());
  const int fd = OpenSocket(reinterpret_cast<const sockaddr*>(&name), sizeof(name), false);
  if (fd < 0 && errno == EADDRINUSE) {
    return absl::UnavailableError(absl::StrCat(path, " exists and is not a socket that may be replaced"));
  }
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  fds_.push_back(fd);
  if (lstat(path.c_str(), &file) == 0) {
    path_ = path;
    path_device_ = file.st_dev;
    path_inode_ = file.st_ino;
  }
  return absl::OkStatus();
}

absl::Status ListeningSockets::OpenTcp(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // On a machine without IPv6, its wildcard is unknown or cannot be taken; then the wildcard of IPv4 remains.
  const bool is_wildcard = host == "0.0.0.0" || host == "::";
  if (is_wildcard && getaddrinfo("::", port.c_str(), &hints, &found) == 0) {
    const int fd = OpenSocket(found->ai_addr, found->ai_addrlen, /*with_ipv4=*/true);
    const int error = errno;
    freeaddrinfo(found);
    if (fd >= 0) fds_.push_back(fd);
    if (fd < 0 && error == EADDRINUSE) return Fail(host, error);
    if (fd >= 0) port_ = PortOf(fd);
    if (fd >= 0 || host == "::") return fd >= 0 ? absl::OkStatus() : Fail(host, error);
  }
  const int unknown = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (unknown != 0) {
    return absl::UnavailableError(absl::StrCat("the host ", host, " is unknown: ", gai_strerror(unknown)));
  }
  int error = 0;
  for (addrinfo* name = found; name != nullptr && error != EADDRINUSE; name = name->ai_next) {
    if (port_ != 0) SetPort(name->ai_addr, port_);  // All addresses of a name get the same free port.
    const int fd = OpenSocket(name->ai_addr, name->ai_addrlen, /*with_ipv4=*/false);
    if (fd < 0) {
      error = errno;
      continue;
    }
    fds_.push_back(fd);
    port_ = PortOf(fd);
  }
  freeaddrinfo(found);
  return fds_.empty() || error == EADDRINUSE ? Fail(host, error) : absl::OkStatus();
}

absl::Status ListeningSockets::Fail(const std::string& host, int error) {
  Close();
  if (error == EADDRINUSE) return absl::UnavailableError(kAddressInUse);
  if (error == EADDRNOTAVAIL) return absl::UnavailableError(absl::StrCat(host, " is not an address of this machine"));
  return absl::UnavailableError(std::strerror(error));
}

}  // namespace quire
