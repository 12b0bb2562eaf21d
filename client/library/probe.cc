// SPDX-License-Identifier: Apache-2.0

#include "client/library/probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace quire {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr size_t kMaxAnswerBytes = 16 << 20;

// The path behind unix: or unix://; empty for other endpoints.
std::string SocketPath(absl::string_view endpoint) {
  if (!absl::ConsumePrefix(&endpoint, "unix:")) return "";
  absl::ConsumePrefix(&endpoint, "//");
  return std::string(endpoint);
}

// Returns "host:port" for "dns:///host:port" and similar names.
absl::string_view HostAndPort(absl::string_view endpoint) {
  if (absl::ConsumePrefix(&endpoint, "dns:")) endpoint = endpoint.substr(endpoint.rfind('/') + 1);
  if (!absl::ConsumePrefix(&endpoint, "ipv4:")) absl::ConsumePrefix(&endpoint, "ipv6:");
  return endpoint.substr(0, endpoint.find(','));
}

absl::StatusOr<Addresses> LookUp(const std::string& endpoint) {
  const absl::string_view host_and_port = HostAndPort(endpoint);
  const std::string port(host_and_port.substr(host_and_port.rfind(':') + 1));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(HostOf(endpoint).c_str(), port.c_str(), &hints, &found);
  if (error != 0) return absl::NotFoundError(gai_strerror(error));
  return Addresses(found, &freeaddrinfo);
}

absl::Status ConnectTo(int fd, const sockaddr* address, socklen_t size, absl::Duration timeout) {
  const timeval patience = absl::ToTimeval(std::max(timeout, absl::Milliseconds(1)));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));  // This also limits connect().
  if (connect(fd, address, size) == 0) return absl::OkStatus();
  return absl::UnavailableError(errno == EINPROGRESS || errno == EAGAIN ? "no answer in time" : std::strerror(errno));
}

absl::StatusOr<std::string> ReadToEnd(int fd, absl::Time deadline) {
  std::string answer;
  char buffer[1 << 14];
  while (true) {
    pollfd readable = {fd, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    const int num_ready = left_ms > 0 ? poll(&readable, 1, static_cast<int>(std::min<int64_t>(left_ms, INT_MAX))) : 0;
    if (num_ready < 0 && errno == EINTR) continue;
    if (num_ready <= 0) return absl::UnavailableError("no whole answer in time");
    const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    if (count < 0) return absl::UnavailableError(std::strerror(errno));
    if (count == 0) return answer;
    answer.append(buffer, static_cast<size_t>(count));
    if (answer.size() > kMaxAnswerBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("its answer has more than ", kMaxAnswerBytes, " bytes"));
    }
  }
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

std::string HostOf(absl::string_view endpoint) {
  if (absl::StartsWith(endpoint, "unix")) return "";
  const absl::string_view host_and_port = HostAndPort(endpoint);
  absl::string_view host = host_and_port.substr(0, host_and_port.rfind(':'));
  absl::ConsumePrefix(&host, "[");
  absl::ConsumeSuffix(&host, "]");
  return std::string(host);
}

absl::StatusOr<std::string> Resolve(const std::string& endpoint) {
  if (absl::StartsWith(endpoint, "unix-abstract:")) return endpoint;
  if (const std::string path = SocketPath(endpoint); !path.empty()) {
    struct stat file;
    if (stat(path.c_str(), &file) != 0) return absl::NotFoundError(std::strerror(errno));
    if (!S_ISSOCK(file.st_mode)) return absl::NotFoundError("it is not a socket");
    return path;
  }
  QUIRE_ASSIGN_OR_RETURN(const Addresses addresses, LookUp(endpoint));
  std::vector<std::string> texts;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(address->ai_addr, address->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      texts.push_back(text);
    }
  }
  return absl::StrJoin(texts, ", ");
}

absl::StatusOr<Socket> Connect(const std::string& endpoint, absl::Duration timeout) {
  if (absl::StartsWith(endpoint, "unix")) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const bool is_abstract = absl::StartsWith(endpoint, "unix-abstract:");
    const std::string path =
        is_abstract ? absl::StrCat(std::string(1, '\0'), endpoint.substr(14)) : SocketPath(endpoint);
    if (path.size() >= sizeof(address.sun_path)) return absl::UnavailableError("the path is too long");
    std::copy(path.begin(), path.end(), address.sun_path);
    const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + !is_abstract);
    Socket connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    QUIRE_RETURN_IF_ERROR(ConnectTo(connection.fd(), reinterpret_cast<const sockaddr*>(&address), size, timeout));
    return connection;
  }
  QUIRE_ASSIGN_OR_RETURN(const Addresses addresses, LookUp(endpoint));
  const absl::Time deadline = absl::Now() + timeout;
  absl::Status status = absl::UnavailableError("the host has no address");
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Socket connection(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    status = ConnectTo(connection.fd(), address->ai_addr, address->ai_addrlen, deadline - absl::Now());
    if (status.ok()) return connection;
  }
  return status;
}

absl::StatusOr<std::string> HttpGet(const std::string& host_and_port, const std::string& path, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  QUIRE_ASSIGN_OR_RETURN(const Socket connection, Connect(host_and_port, timeout));
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", host_and_port, "\r\nConnection: close\r\n\r\n");
  if (send(connection.fd(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    return absl::UnavailableError(std::strerror(errno));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string answer, ReadToEnd(connection.fd(), deadline));
  const std::string first_line = answer.substr(0, answer.find("\r\n"));
  if (!absl::StrContains(first_line, " 200")) {
    return absl::UnknownError(absl::StrCat("it answers \"", first_line.substr(0, 80), "\""));
  }
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? std::string() : answer.substr(body + 4);
}

bool SpeaksHttp1(const std::string& endpoint, absl::Duration timeout) {
  const absl::Status answer = HttpGet(endpoint, "/", timeout).status();
  return answer.ok() || absl::StrContains(answer.message(), "answers \"HTTP/1");
}

}  // namespace quire
