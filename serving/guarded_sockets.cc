// SPDX-License-Identifier: Apache-2.0

#include "serving/guarded_sockets.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/check.h"

namespace quire {
namespace {

// Returns the function of this name that the program would call without ours.
template <typename Function>
Function* Original(const char* name) {
  void* const function = dlsym(RTLD_NEXT, name);
  QUIRE_CHECK(function != nullptr) << "no library has the function " << name;
  return reinterpret_cast<Function*>(function);
}

// Calls `use` with each part of the first `size` bytes of a message.
template <typename Use>
void ForEachPart(const msghdr& message, ssize_t size, Use use) {
  auto left = static_cast<size_t>(size);
  for (size_t i = 0; i < message.msg_iovlen && left > 0; ++i) {
    const size_t part = std::min(left, message.msg_iov[i].iov_len);
    use(absl::string_view(static_cast<const char*>(message.msg_iov[i].iov_base), part));
    left -= part;
  }
}

using TlsGuard = std::shared_ptr<GuardedConnection>;

void FreeTlsGuard(void* /*ssl*/, void* guard, CRYPTO_EX_DATA* /*data*/, int /*index*/, long /*argl*/, void* /*argp*/) {
  delete static_cast<TlsGuard*>(guard);
}

// Returns the guard of a connection with TLS, or null if it needs none. The threads of gRPC use a connection one after
// the other.
GuardedConnection* TlsGuardOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeTlsGuard);
  if (SSL_is_server(ssl) == 0) return nullptr;
  auto* guard = static_cast<TlsGuard*>(SSL_get_ex_data(ssl, index));
  if (guard == nullptr) {
    guard = new TlsGuard(GuardedSockets::Instance().MakeForTls());
    SSL_set_ex_data(ssl, index, guard);
  }
  return guard->get();
}

}  // namespace

GuardedSockets& GuardedSockets::Instance() {
  static auto* const instance = new GuardedSockets();
  return *instance;
}

bool GuardedSockets::IsOpen(int fd, const Socket& socket) {
  struct stat file;
  return fstat(fd, &file) == 0 && file.st_dev == socket.device && file.st_ino == socket.inode;
}

void GuardedSockets::Add(int fd, std::shared_ptr<GuardedPort> port, const std::string& peer) {
  struct stat file;
  if (fstat(fd, &file) != 0) return;
  Socket socket{file.st_dev, file.st_ino, std::make_shared<GuardedConnection>(std::move(port), peer, fd)};
  const MutexLock lock(&mutex_);
  std::swap(sockets_[fd], socket);  // The connection before is destroyed without the lock.
}

std::shared_ptr<GuardedConnection> GuardedSockets::Find(int fd) {
  Socket closed;
  const MutexLock lock(&mutex_);
  const auto it = sockets_.find(fd);
  if (it == sockets_.end()) return nullptr;
  if (IsOpen(fd, it->second)) return it->second.connection;
  closed = std::move(it->second);
  sockets_.erase(it);
  return nullptr;
}

std::shared_ptr<GuardedConnection> GuardedSockets::MakeForTls() const {
  const MutexLock lock(&mutex_);
  std::shared_ptr<GuardedPort> port = tls_port_.lock();
  return port == nullptr ? nullptr : std::make_shared<GuardedConnection>(std::move(port), "a client with TLS", -1);
}

void GuardedSockets::SetTlsPort(const std::shared_ptr<GuardedPort>& port) {
  const MutexLock lock(&mutex_);
  tls_port_ = port;
}

void GuardedSockets::ShutDown(int fd, const GuardedConnection* connection) {
  const MutexLock lock(&mutex_);
  const auto it = sockets_.find(fd);
  if (it == sockets_.end() || it->second.connection.get() != connection || !IsOpen(fd, it->second)) return;
  shutdown(fd, SHUT_RDWR);
}

void GuardedSockets::Remove(int fd) {
  Socket closed;
  const MutexLock lock(&mutex_);
  const auto it = sockets_.find(fd);
  if (it == sockets_.end()) return;
  closed = std::move(it->second);
  sockets_.erase(it);
}

void GuardedSockets::RemoveClosed() {
  std::vector<Socket> closed;
  const MutexLock lock(&mutex_);
  for (auto it = sockets_.begin(); it != sockets_.end();) {
    if (IsOpen(it->first, it->second)) {
      ++it;
    } else {
      closed.push_back(std::move(it->second));
      sockets_.erase(it++);
    }
  }
}

}  // namespace quire

// The functions that gRPC calls, see GuardedSockets.
extern "C" {

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const original = quire::Original<decltype(recvmsg)>("recvmsg");
  quire::GuardedSockets& sockets = quire::GuardedSockets::Instance();
  const std::shared_ptr<quire::GuardedConnection> connection = sockets.Find(fd);
  if (connection == nullptr || (flags & (MSG_ERRQUEUE | MSG_PEEK)) != 0) return original(fd, message, flags);
  if (connection->is_ended()) {
    errno = ECONNRESET;
    return -1;
  }
  const ssize_t size = original(fd, message, flags);
  if (size == 0) sockets.Remove(fd);
  if (size <= 0) return size;
  quire::ForEachPart(*message, size, [&](absl::string_view bytes) { connection->Receive(bytes); });
  if (!connection->is_ended()) return size;
  errno = ECONNRESET;
  return -1;
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const original = quire::Original<decltype(sendmsg)>("sendmsg");
  const std::shared_ptr<quire::GuardedConnection> connection = quire::GuardedSockets::Instance().Find(fd);
  if (connection == nullptr) return original(fd, message, flags);
  ssize_t size = 0;
  int error = 0;
  connection->Send([&](quire::FrameGuard* guard) {
    size = original(fd, message, flags);
    error = errno;
    if (size > 0) quire::ForEachPart(*message, size, [&](absl::string_view bytes) { guard->Send(bytes); });
  });
  errno = error;
  return size;
}

int SSL_read(SSL* ssl, void* buffer, int size) {
  static auto* const original = quire::Original<decltype(SSL_read)>("SSL_read");
  quire::GuardedConnection* const connection = quire::TlsGuardOf(ssl);
  const int num_read = original(ssl, buffer, size);
  if (connection == nullptr || num_read <= 0) return num_read;
  connection->Receive(absl::string_view(static_cast<const char*>(buffer), static_cast<size_t>(num_read)));
  if (!connection->is_ended()) return num_read;
  ERR_raise(ERR_LIB_USER, ERR_R_DISABLED);  // By this, SSL_get_error says that the connection has failed.
  return -1;
}

int SSL_write(SSL* ssl, const void* buffer, int size) {
  static auto* const original = quire::Original<decltype(SSL_write)>("SSL_write");
  quire::GuardedConnection* const connection = quire::TlsGuardOf(ssl);
  if (connection == nullptr) return original(ssl, buffer, size);
  int num_written = 0;
  connection->Send([&](quire::FrameGuard* guard) {
    num_written = original(ssl, buffer, size);
    if (num_written <= 0) return;
    guard->Send(absl::string_view(static_cast<const char*>(buffer), static_cast<size_t>(num_written)));
  });
  return num_written;
}

}  // extern "C"
