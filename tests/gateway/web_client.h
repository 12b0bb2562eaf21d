// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_WEB_CLIENT_H_
#define QUIRE_TESTS_GATEWAY_WEB_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "security/tls_files.h"

namespace quire {

// A connection of a client. It waits for at most a minute.
class TestClient {
 public:
  // Connects from 127.0.0.`last_byte`.
  explicit TestClient(const std::string& address, uint32_t last_byte = 1) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in from = {};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7F000000 + last_byte);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval timeout = {.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  ~TestClient() { Close(); }

  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void Send(const std::string& text) {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
  }

  void TrySend(char byte) { send(fd_, &byte, 1, MSG_NOSIGNAL); }

  // Reads until `end` has come, or until the server closes the connection.
  std::string ReadUntil(const std::string& end) {
    while (received_.find(end) == std::string::npos) {
      char buffer[4096];
      const ssize_t num_bytes = recv(fd_, buffer, sizeof(buffer), 0);
      if (num_bytes <= 0) return std::exchange(received_, "");
      received_.append(buffer, static_cast<size_t>(num_bytes));
    }
    const size_t size = received_.find(end) + end.size();
    std::string text = received_.substr(0, size);
    received_.erase(0, size);
    return text;
  }
  // Reads at most 4 KiB, and returns how many bytes came.
  size_t ReadSome() {
    char buffer[4096];
    return static_cast<size_t>(std::max<ssize_t>(recv(fd_, buffer, sizeof(buffer), 0), 0));
  }
  // Returns whether the server closes the connection, and sends nothing before.
  bool WaitForEnd() {
    char byte;
    const ssize_t num_bytes = recv(fd_, &byte, 1, 0);
    return num_bytes == 0 || (num_bytes < 0 && errno == ECONNRESET);
  }
  std::string ReadAll() { return ReadUntil(std::string("\0never", 6)); }
  int fd() const { return fd_; }

 private:
  int fd_;
  std::string received_;
};

// A connection with TLS.
class TlsClient {
 public:
  TlsClient(const std::string& address, const TlsFiles& files, bool shows_certificate)
      : client_(address), context_(SSL_CTX_new(TLS_client_method())) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL.
    SSL_CTX_load_verify_locations(context_, files.authority.c_str(), nullptr);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    if (shows_certificate) {
      SSL_CTX_use_certificate_chain_file(context_, files.certificate.c_str());
      SSL_CTX_use_PrivateKey_file(context_, files.key.c_str(), SSL_FILETYPE_PEM);
    }
    tls_ = SSL_new(context_);
    SSL_set_fd(tls_, client_.fd());
    is_connected_ = SSL_connect(tls_) == 1;
  }
  ~TlsClient() {
    SSL_free(tls_);
    SSL_CTX_free(context_);
  }

  // Returns false when this or the handshake has failed.
  bool Send(const std::string& text) {
    return is_connected_ && SSL_write(tls_, text.data(), static_cast<int>(text.size())) > 0;
  }
  // Reads at most 4 KiB. Returns nothing at the end.
  std::string ReadSome() {
    char buffer[4096];
    const int num_bytes = SSL_read(tls_, buffer, sizeof(buffer));
    last_error_ = SSL_get_error(tls_, num_bytes);
    return std::string(buffer, static_cast<size_t>(std::max(num_bytes, 0)));
  }
  std::string ReadAll() {
    std::string text;
    for (std::string part = ReadSome(); !part.empty(); part = ReadSome()) text += part;
    return text;
  }
  // Returns whether the last read has found the end that the server has sent through TLS.
  bool has_end() const { return last_error_ == SSL_ERROR_ZERO_RETURN; }
  // Ends the side of the client. Returns whether the server then closes the connection.
  bool Close() {
    SSL_shutdown(tls_);
    return client_.WaitForEnd();
  }

 private:
  TestClient client_;
  SSL_CTX* const context_;
  SSL* tls_ = nullptr;
  bool is_connected_ = false;
  int last_error_ = SSL_ERROR_NONE;
};

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_WEB_CLIENT_H_
