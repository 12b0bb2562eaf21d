// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_GUARDED_SOCKETS_H_
#define QUIRE_SERVING_GUARDED_SOCKETS_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "serving/guarded_port.h"

namespace quire {

// The sockets that were handed to gRPC, with the guards of their connections.
//
// Nothing in the API of gRPC is between the socket and its parser, and the parser is what an attacker fills. So this
// program defines the functions by which gRPC reaches its sockets: recvmsg and sendmsg, and SSL_read and SSL_write for
// connections with TLS. They call the functions of the C library and of OpenSSL and show the bytes to the guard. A
// socket that nobody has added is left alone. A version of gRPC that calls other functions works without guards, and
// GrpcServerTest shows whether they are called. Thread-safe.
class GuardedSockets {
 public:
  static GuardedSockets& Instance();

  // From now on, guards the connection at `fd`, which nobody has read yet.
  void Add(int fd, std::shared_ptr<GuardedPort> port, const std::string& peer);

  // Returns the guard of the connection at `fd`, or null.
  std::shared_ptr<GuardedConnection> Find(int fd) QUIRE_EXCLUDES(mutex_);

  // Makes the guard of a connection with TLS, which sees the bytes without TLS. Returns null without a port for it.
  std::shared_ptr<GuardedConnection> MakeForTls() const QUIRE_EXCLUDES(mutex_);
  // If any clients of the process speak TLS, they are those of this port.
  void SetTlsPort(const std::shared_ptr<GuardedPort>& port) QUIRE_EXCLUDES(mutex_);

  // Shuts the socket down, if it still is that of this connection.
  void ShutDown(int fd, const GuardedConnection* connection) QUIRE_EXCLUDES(mutex_);
  // Removes the guard of this socket.
  void Remove(int fd) QUIRE_EXCLUDES(mutex_);
  // Removes the guards of the sockets that gRPC has closed.
  void RemoveClosed() QUIRE_EXCLUDES(mutex_);

 private:
  struct Socket {
    dev_t device;
    ino_t inode;
    std::shared_ptr<GuardedConnection> connection;
  };

  GuardedSockets() = default;

  static bool IsOpen(int fd, const Socket& socket);

  mutable Mutex mutex_;
  absl::flat_hash_map<int, Socket> sockets_ QUIRE_GUARDED_BY(mutex_);
  std::weak_ptr<GuardedPort> tls_port_ QUIRE_GUARDED_BY(mutex_);  // A process has one at most.
};

}  // namespace quire

#endif  // QUIRE_SERVING_GUARDED_SOCKETS_H_
