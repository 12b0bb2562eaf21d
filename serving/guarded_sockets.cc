// SPDX-License-Identifier: Apache-2.0

#include "serving/guarded_sockets.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
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

// Returns the bytes by which the client of a connection has named itself.
std::string RandomOf(const SSL* ssl) {
  std::string random(ClientHello::kRandomSize, '\0');
  random.resize(SSL_get_client_random(ssl, reinterpret_cast<unsigned char*>(random.data()), random.size()));
  return random;
}

// Returns the guard of a connection with TLS, or null if it needs none. The threads of gRPC use a connection one after
// the other.
GuardedConnection* TlsGuardOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeTlsGuard);
  if (SSL_is_server(ssl) == 0) return nullptr;
  auto* guard = static_cast<TlsGuard*>(SSL_get_ex_data(ssl, index));
  if (guard == nullptr) {
    guard = new TlsGuard(GuardedSockets::Instance().TakeTls(RandomOf(ssl)));
    SSL_set_ex_data(ssl, index, guard);
  }
  return guard->get();
}

// The parts of a message in which `size` bytes have room.
struct ShortMessage {
  ShortMessage(const msghdr& whole, size_t size) : head(whole) {
    for (size_t i = 0; i < whole.msg_iovlen && size > 0; ++i) {
      parts.push_back(whole.msg_iov[i]);
      parts.back().iov_len = std::min(parts.back().iov_len, size);
      size -= parts.back().iov_len;
    }
    head.msg_iov = parts.data();
    head.msg_iovlen = parts.size();
  }
  ShortMessage(const ShortMessage&) = delete;
  ShortMessage& operator=(const ShortMessage&) = delete;

  msghdr head;
  absl::InlinedVector<iovec, 8> parts;
};

}  // namespace

GuardedSockets& GuardedSockets::Instance() {
  static auto* const instance = new GuardedSockets();
  return *instance;
}

bool GuardedSockets::IsOpen(int fd, const Socket& socket) {
  struct stat file;
  return fstat(fd, &file) == 0 && file.st_dev == socket.device && file.st_ino == socket.inode;
}

// A lane for every second processor, so that the others are left for neighbours.
GuardedSockets::GuardedSockets() : turns_(std::max(1, static_cast<int>(std::thread::hardware_concurrency() / 2))) {}

void GuardedSockets::Add(int fd, std::shared_ptr<GuardedPort> port, const std::string& peer) {
  struct stat file;
  if (fstat(fd, &file) != 0) return;
  Socket socket{file.st_dev, file.st_ino, std::make_shared<GuardedConnection>(std::move(port), peer, fd)};
  Shard& shard = ShardOf(fd);
  const MutexLock lock(&shard.mutex);
  std::swap(shard.sockets[fd], socket);  // The connection before is destroyed without the lock.
}

std::shared_ptr<GuardedConnection> GuardedSockets::Find(int fd) {
  Socket closed;
  Shard& shard = ShardOf(fd);
  const MutexLock lock(&shard.mutex);
  const auto it = shard.sockets.find(fd);
  if (it == shard.sockets.end()) return nullptr;
  if (IsOpen(fd, it->second)) return it->second.connection;
  closed = std::move(it->second);
  shard.sockets.erase(it);
  return nullptr;
}

std::shared_ptr<GuardedConnection> GuardedSockets::TakeTls(const std::string& random) {
  const MutexLock lock(&tls_mutex_);
  std::shared_ptr<GuardedPort> port = tls_port_.lock();
  if (port == nullptr) return nullptr;
  const auto it = tls_.find(random);
  std::shared_ptr<GuardedConnection> connection = it == tls_.end() ? nullptr : it->second.lock();
  if (it != tls_.end()) tls_.erase(it);
  if (connection != nullptr) return connection;
  return std::make_shared<GuardedConnection>(std::move(port), "a client with TLS", -1);
}

void GuardedSockets::AddTls(const std::string& random, const std::shared_ptr<GuardedConnection>& connection) {
  const MutexLock lock(&tls_mutex_);
  if (tls_.size() >= tls_limit_) {
    absl::erase_if(tls_, [](const auto& entry) { return entry.second.expired(); });
    tls_limit_ = std::max<size_t>(64, 2 * tls_.size());
  }
  std::weak_ptr<GuardedConnection>& named = tls_[random];
  if (named.expired())
    named = connection;
  else if (named.lock() != connection)
    connection->Refuse("another client has sent the same random bytes");
}

void GuardedSockets::SetTlsPort(const std::shared_ptr<GuardedPort>& port) {
  const MutexLock lock(&tls_mutex_);
  tls_port_ = port;
}

void GuardedSockets::ShutDown(int fd, const GuardedConnection* connection) {
  Shard& shard = ShardOf(fd);
  const MutexLock lock(&shard.mutex);
  const auto it = shard.sockets.find(fd);
  if (it == shard.sockets.end() || it->second.connection.get() != connection || !IsOpen(fd, it->second)) return;
  shutdown(fd, SHUT_RDWR);
}

void GuardedSockets::Remove(int fd) {
  Socket closed;
  Shard& shard = ShardOf(fd);
  const MutexLock lock(&shard.mutex);
  const auto it = shard.sockets.find(fd);
  if (it == shard.sockets.end()) return;
  closed = std::move(it->second);
  shard.sockets.erase(it);
}

void GuardedSockets::RemoveClosed() {
  std::vector<Socket> closed;
  for (Shard& shard : shards_) {
    const MutexLock lock(&shard.mutex);
    for (auto it = shard.sockets.begin(); it != shard.sockets.end();) {
      if (IsOpen(it->first, it->second)) {
        ++it;
      } else {
        closed.push_back(std::move(it->second));
        shard.sockets.erase(it++);
      }
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
  const size_t num_bytes = connection->BytesToRead();
  if (num_bytes == 0) {
    // The end of the connection is told at once. Linux has reported it now, and would not report it with the turn.
    char byte = 0;
    const ssize_t left = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (left == 0) sockets.Remove(fd);
    if (left > 0) errno = EAGAIN;
    return left == 0 ? 0 : -1;
  }
  quire::ShortMessage part(*message, num_bytes);
  const ssize_t size = original(fd, &part.head, flags);
  message->msg_controllen = part.head.msg_controllen;
  message->msg_flags = part.head.msg_flags;
  if (size == 0) sockets.Remove(fd);
  if (size <= 0) return size;
  quire::ForEachPart(*message, size, [&](absl::string_view bytes) {
    const std::optional<std::string> random = connection->ReceiveFromSocket(bytes);
    if (random.has_value()) sockets.AddTls(*random, connection);
  });
  if (!connection->is_ended()) return size;
  errno = ECONNRESET;
  return -1;
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const original = quire::Original<decltype(sendmsg)>("sendmsg");
  const std::shared_ptr<quire::GuardedConnection> connection = quire::GuardedSockets::Instance().Find(fd);
  if (connection == nullptr || connection->has_tls()) return original(fd, message, flags);
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
