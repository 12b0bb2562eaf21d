#include "base/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

constexpr absl::string_view kUnix = "unix:";
constexpr char kForms[] = "it is not host:port or unix:path";

struct HostPort {
  std::string host;  // An IPv6 address has no brackets here.
  std::string port;
};

// Returns false when `address` is not host:port.
bool SplitHostPort(absl::string_view address, HostPort* split) {
  const size_t colon = address.rfind(':');
  int port;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) return false;
  if (port < 0 || port > kMaxListenPort) return false;
  absl::string_view host = address.substr(0, colon);
  const bool is_bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty() || host.find_first_of("[]/") != absl::string_view::npos) return false;
  if (!is_bracketed && absl::StrContains(host, ':')) return false;
  *split = {std::string(host), absl::StrCat(port)};
  return true;
}

// Returns false when the path is empty or longer than the name of a socket can be.
bool MakeUnixName(absl::string_view path, sockaddr_un* name) {
  *name = {};
  name->sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name->sun_path)) return false;
  std::memcpy(name->sun_path, path.data(), path.size());
  return true;
}

// Listens for a moment. Returns 0 when that worked, and errno otherwise.
int TryListen(const sockaddr* name, socklen_t size) {
  const int fd = socket(name->sa_family, SOCK_STREAM, 0);
  if (fd < 0) return errno;
  // Servers set this option too, so that connections that have just ended do not count as use.
  const int on = 1;
  if (name->sa_family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool listens = bind(fd, name, size) == 0 && listen(fd, 1) == 0;
  const int error = listens ? 0 : errno;
  close(fd);
  return error;
}

absl::Status CheckListeningOnUnix(const std::string& path) {
  sockaddr_un name;
  if (!MakeUnixName(path, &name)) {
    return absl::UnavailableError(
        absl::StrCat("the path has ", path.size(), " characters, it must have 1 to ", sizeof(name.sun_path) - 1));
  }
  const int error = TryListen(reinterpret_cast<const sockaddr*>(&name), sizeof(name));
  if (error == EADDRINUSE) {
    return absl::UnavailableError(absl::StrCat(path, " exists and is not a socket that may be replaced"));
  }
  if (error != 0) return absl::UnavailableError(std::strerror(error));
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

bool IsListenAddress(absl::string_view address) {
  HostPort split;
  if (absl::ConsumePrefix(&address, kUnix)) return !address.empty();
  return SplitHostPort(address, &split);
}

bool HasBadPort(absl::string_view address) {
  const bool has_port = !absl::StartsWith(address, kUnix) && absl::StrContains(address, ':');
  return has_port && !IsListenAddress(address) && IsListenAddress(WithPort(std::string(address), 0));
}

std::string WithPort(const std::string& address, int port) {
  if (absl::StartsWith(address, kUnix)) return address;
  return absl::StrCat(absl::string_view(address).substr(0, address.rfind(':')), ":", port);
}

bool IsUnixSocketInUse(const std::string& address) {
  absl::string_view path = address;
  sockaddr_un name;
  if (!absl::ConsumePrefix(&path, kUnix) || !MakeUnixName(path, &name)) return false;
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  const bool in_use = fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  if (fd >= 0) close(fd);
  return in_use;
}

absl::Status CheckListening(const std::string& address) {
  if (IsUnixSocketInUse(address)) return absl::UnavailableError("it is in use");
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, kUnix)) return CheckListeningOnUnix(std::string(path));
  HostPort split;
  if (!SplitHostPort(address, &split)) return absl::UnavailableError(kForms);

  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(split.host.c_str(), split.port.c_str(), &hints, &found);
  if (unknown != 0) {
    return absl::UnavailableError(absl::StrCat("the host ", split.host, " is unknown: ", gai_strerror(unknown)));
  }
  int error = 0;
  for (const addrinfo* name = found; name != nullptr && error == 0; name = name->ai_next) {
    error = TryListen(name->ai_addr, name->ai_addrlen);
  }
  freeaddrinfo(found);
  if (error == 0) return absl::OkStatus();
  if (error == EADDRINUSE) return absl::UnavailableError("it is in use");
  if (error == EADDRNOTAVAIL) {
    return absl::UnavailableError(absl::StrCat(split.host, " is not an address of this machine"));
  }
  return absl::UnavailableError(std::strerror(error));
}

}  // namespace quire
