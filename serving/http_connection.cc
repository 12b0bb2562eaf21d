// SPDX-License-Identifier: Apache-2.0

#include "serving/http_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "serving/http_head.h"

namespace quire {
namespace {

using SteadyTime = std::chrono::steady_clock;

constexpr size_t kMaxHeadBytes = 16 * 1024;

// Waits until the socket is ready for `event`. Returns false at the deadline.
bool WaitFor(int fd, short event, SteadyTime::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyTime::now());
    if (left.count() <= 0) return false;
    pollfd file{.fd = fd, .events = event, .revents = 0};
    const int num_ready = poll(&file, 1, static_cast<int>(left.count()));
    if (num_ready > 0) return true;
    if (num_ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

void HttpConnection::Close() {
  close(fd_);
}

absl::StatusOr<std::string> HttpConnection::ReadHead(Duration timeout) {
  const SteadyTime::time_point deadline = SteadyTime::now() + timeout;
  std::string text;
  while (true) {
    if (!WaitFor(fd_, POLLIN, deadline)) return absl::DeadlineExceededError("the request took too long");
    char buffer[4096];
    const ssize_t size = recv(fd_, buffer, sizeof(buffer), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return absl::UnavailableError("the client has gone");
    const size_t num_searched = text.size();
    text.append(buffer, static_cast<size_t>(size));
    const auto found = FindHeadEnd(text, num_searched);
    if (const auto* const refusal = std::get_if<HttpRefusal>(&found)) {
      return absl::InvalidArgumentError(refusal->message);
    }
    const std::optional<size_t> end = std::get<std::optional<size_t>>(found);
    if (end.value_or(text.size()) > kMaxHeadBytes) {
      return absl::ResourceExhaustedError("the head is longer than 16 KiB");
    }
    if (end.has_value()) return text.substr(0, *end);
  }
}

void HttpConnection::Write(absl::string_view text, Duration timeout) {
  const SteadyTime::time_point deadline = SteadyTime::now() + timeout;
  while (!text.empty() && WaitFor(fd_, POLLOUT, deadline)) {
    const ssize_t size = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
    if (size < 0 && errno != EAGAIN && errno != EINTR) return;
    if (size > 0) text.remove_prefix(static_cast<size_t>(size));
  }
}

void HttpConnection::Finish(Duration timeout) {
  const SteadyTime::time_point deadline = SteadyTime::now() + timeout;
  shutdown(fd_, SHUT_WR);
  char buffer[4096];
  while (WaitFor(fd_, POLLIN, deadline)) {
    const ssize_t size = recv(fd_, buffer, sizeof(buffer), 0);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

}  // namespace quire
