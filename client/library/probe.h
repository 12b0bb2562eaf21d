// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_PROBE_H_
#define QUIRE_CLIENT_LIBRARY_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace quire {

// A connected socket. The destructor closes it.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ~Socket();

  int fd() const { return fd_; }

 private:
  int fd_;
};

// Returns the addresses of an endpoint (see CheckEndpoint) for people: "127.0.0.1, ::1". NOT_FOUND when the host is not
// known or the socket does not exist.
absl::StatusOr<std::string> Resolve(const std::string& endpoint);

// Connects without gRPC to the first address that answers within `timeout`, which also limits later writes. UNAVAILABLE
// says why none answers.
absl::StatusOr<Socket> Connect(const std::string& endpoint, absl::Duration timeout);

// Returns the host of an endpoint without brackets, or "" for a unix socket.
std::string HostOf(absl::string_view endpoint);

// Sends a GET request and returns the body of the answer. UNAVAILABLE when the answer is not complete within `timeout`,
// UNKNOWN with the first line when the code is not 200, RESOURCE_EXHAUSTED when the answer has more than 16 MiB.
absl::StatusOr<std::string> HttpGet(const std::string& host_and_port, const std::string& path, absl::Duration timeout);

// Returns whether what answers at the endpoint within `timeout` is a server of HTTP/1.
bool SpeaksHttp1(const std::string& endpoint, absl::Duration timeout);

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_PROBE_H_
