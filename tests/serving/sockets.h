// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SERVING_SOCKETS_H_
#define QUIRE_TESTS_SERVING_SOCKETS_H_

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace quire {

// A client on this machine, of TCP unless it connects to a unix socket.
class TestSocket {
 public:
  // Takes a descriptor and connects nowhere.
  TestSocket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {}
  TestSocket(TestSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~TestSocket() {
    if (fd_ >= 0) close(fd_);
  }

  // Connects from 127.0.0.`last_byte`.
  bool Connect(int port, uint32_t last_byte = 1) {
    sockaddr_in from{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(0x7F000000 + last_byte)}, .sin_zero = {}};
    sockaddr_in to{.sin_family = AF_INET,
                   .sin_port = htons(static_cast<uint16_t>(port)),
                   .sin_addr = {htonl(INADDR_LOOPBACK)},
                   .sin_zero = {}};
    return bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof(from)) == 0 &&
           connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }

  // Connects to a unix socket instead.
  bool Connect(const std::string& path) {
    close(fd_);
    fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, path.c_str(), sizeof(to.sun_path) - 1);
    return connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }

  // Waits until the server has sent something or closed the connection. Returns whether it has closed it.
  bool IsClosed() {
    char byte;
    return recv(fd_, &byte, 1, MSG_PEEK) <= 0;
  }
  // Returns whether the connection is open and the server has sent nothing yet. Does not wait.
  bool IsSilent() {
    char byte;
    return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }
  bool Send(char byte) { return send(fd_, &byte, 1, MSG_NOSIGNAL) == 1; }
  // Returns whether all bytes could be sent.
  bool SendAll(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t size = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(size));
    }
    return true;
  }

  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SERVING_SOCKETS_H_
