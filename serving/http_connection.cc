// SPDX-License-Identifier: Apache-2.0

#include "serving/http_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/hex.h"

namespace quire {
namespace {

using SteadyTime = std::chrono::steady_clock;

constexpr size_t kMaxHeadBytes = 16 * 1024;
constexpr char kHeadEnd[] = "\r\n\r\n";

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

// Decodes %41, and in a form also '+'.
std::string Decode(absl::string_view text, bool is_form) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool may_be_escape = text[i] == '%' && i + 2 < text.size();
    if (may_be_escape && HexValue(text[i + 1]) >= 0 && HexValue(text[i + 2]) >= 0) {
      out += static_cast<char>(16 * HexValue(text[i + 1]) + HexValue(text[i + 2]));
      i += 2;
    } else {
      out += is_form && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// Reads "a=1&b=2".
std::map<std::string, std::string> Parameters(absl::string_view query) {
  std::map<std::string, std::string> parameters;
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    parameters.emplace(Decode(sides.first, true), Decode(sides.second, true));
  }
  return parameters;
}

}  // namespace

std::string HttpHead::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

std::optional<HttpHead> ParseHttpHead(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, "\r\n");
  const std::vector<absl::string_view> first = absl::StrSplit(lines[0], ' ');
  if (first.size() != 3 || first[0].empty() || !absl::StartsWith(first[1], "/") ||
      !absl::StartsWith(first[2], "HTTP/1."))
    return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> target = absl::StrSplit(first[1], absl::MaxSplits('?', 1));
  HttpHead head{.method = std::string(first[0]),
                .path = Decode(target.first, false),
                .parameters = Parameters(target.second),
                .headers = {}};
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    head.headers.emplace(absl::AsciiStrToLower(sides.first), absl::StripAsciiWhitespace(sides.second));
  }
  return head;
}

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
    const size_t searched = text.size() < 3 ? 0 : text.size() - 3;
    text.append(buffer, static_cast<size_t>(size));
    const size_t end = text.find(kHeadEnd, searched);
    if (end != text.npos && end <= kMaxHeadBytes) return text.substr(0, end);
    if (text.size() > kMaxHeadBytes) return absl::ResourceExhaustedError("the head is longer than 16 KiB");
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
