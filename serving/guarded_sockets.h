// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_GUARDED_SOCKETS_H_
#define QUIRE_SERVING_GUARDED_SOCKETS_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "serving/guarded_port.h"
#include "serving/turn_queue.h"

namespace quire {

// The sockets that were handed to gRPC, with the guards of their connections.
//
// Nothing in the API of gRPC is between the socket and its parser, and the parser is what an attacker fills. So this
// program defines the functions by which gRPC reaches its sockets: recvmsg and sendmsg, and SSL_read and SSL_write for
// connections with TLS. They call the functions of the C library and of OpenSSL and show the bytes to the guard. While
// a connection waits for its turn, recvmsg says that there are no bytes. A socket that nobody has added is left alone.
// A version of gRPC that calls other functions works without guards, and GrpcServerTest shows whether they are called.
// Thread-safe.
class GuardedSockets {
 public:
  static GuardedSockets& Instance();

  // From now on, guards the connection at `fd`, which nobody has read yet. `peer` is the address of the client, or
  // empty for a unix socket.
  void Add(int fd, std::shared_ptr<GuardedPort> port, const std::string& peer);

  // Returns the guard of the connection at `fd`, or null.
  std::shared_ptr<GuardedConnection> Find(int fd);

  // Returns the guard of a connection with TLS, which sees the bytes without TLS, too. `random` is what the client has
  // named itself by. Returns null without a port for it.
  std::shared_ptr<GuardedConnection> TakeTls(const std::string& random) QUIRE_EXCLUDES(tls_mutex_);
  // A client with TLS has named itself by these bytes.
  void AddTls(const std::string& random, const std::shared_ptr<GuardedConnection>& connection)
      QUIRE_EXCLUDES(tls_mutex_);
  // If any clients of the process speak TLS, they are clients of this port.
  void SetTlsPort(const std::shared_ptr<GuardedPort>& port) QUIRE_EXCLUDES(tls_mutex_);

  // Shuts the socket down, if it still belongs to this connection.
  void ShutDown(int fd, const GuardedConnection* connection);
  // Removes the guard of this socket.
  void Remove(int fd);
  // Removes the guards of the sockets that gRPC has closed.
  void RemoveClosed();

  // The turns of all connections.
  TurnQueue* turns() { return &turns_; }

 private:
  struct Socket {
    dev_t device;
    ino_t inode;
    std::shared_ptr<GuardedConnection> connection;
  };
  // A part of the sockets. Each read and each write of gRPC looks for its socket, so the threads share no mutex.
  struct alignas(64) Shard {
    Mutex mutex;
    absl::flat_hash_map<int, Socket> sockets QUIRE_GUARDED_BY(mutex);
  };

  GuardedSockets();

  static bool IsOpen(int fd, const Socket& socket);
  Shard& ShardOf(int fd) { return shards_[static_cast<size_t>(fd) % shards_.size()]; }

  std::array<Shard, 64> shards_;
  Mutex tls_mutex_;
  std::weak_ptr<GuardedPort> tls_port_ QUIRE_GUARDED_BY(tls_mutex_);  // A process has one at most.
  // Connections whose TLS nobody has used yet, by what the client has named itself by.
  absl::flat_hash_map<std::string, std::weak_ptr<GuardedConnection>> tls_ QUIRE_GUARDED_BY(tls_mutex_);
  size_t tls_limit_ QUIRE_GUARDED_BY(tls_mutex_) = 64;  // From this number on, those that are gone are removed.
  TurnQueue turns_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_GUARDED_SOCKETS_H_
