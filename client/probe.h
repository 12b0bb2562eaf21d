#ifndef QUIRE_CLIENT_PROBE_H_
#define QUIRE_CLIENT_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace quire {

// A connected socket, closed with this.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ~Socket();

  int fd() const { return fd_; }

 private:
  int fd_;
};

// The addresses behind an endpoint (see CheckEndpoint), for people: "127.0.0.1, ::1". NOT_FOUND when the host is not
// known or there is no such socket.
absl::StatusOr<std::string> Resolve(const std::string& endpoint);

// Connects without gRPC, to the first address that answers within `timeout`; the same bounds a write later on.
// UNAVAILABLE says why nobody does.
absl::StatusOr<Socket> Connect(const std::string& endpoint, absl::Duration timeout);

// The host of an endpoint, without brackets; empty for a unix socket.
std::string HostOf(absl::string_view endpoint);

// The body of an answer to GET with the code 200, of at most 16 MiB with its head. UNAVAILABLE when it is not whole
// within `timeout`, UNKNOWN with the answer's first line, RESOURCE_EXHAUSTED when it is longer.
absl::StatusOr<std::string> HttpGet(const std::string& host_and_port, const std::string& path, absl::Duration timeout);

}  // namespace quire

#endif  // QUIRE_CLIENT_PROBE_H_
