// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_CONNECTION_TABLE_H_
#define QUIRE_SERVING_CONNECTION_TABLE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace quire {

// The open connections of a port. A library to which a socket is handed over (gRPC) does not say when it closes it, so
// the table asks the kernel: a connection is open as long as its descriptor refers to the same socket, which its inode
// number tells. Not thread-safe.
class ConnectionTable {
 public:
  // Adds an open socket. `peer` is the address of its peer. `name` is empty or differs from the names of all other open
  // connections. An older connection with the same descriptor or name must have ended.
  void Add(int fd, const std::string& peer, const std::string& name);

  // Removes the connections that have been closed. This takes a system call for each connection.
  void RemoveClosed();

  // These count the connections that were open at the latest call of RemoveClosed or were added after it.
  int size() const { return static_cast<int>(sockets_.size()); }
  int CountOf(const std::string& peer) const;

  // Returns how many bytes the TCP connection of this name has received. Returns nothing if it has been closed.
  std::optional<int64_t> ReceivedBytes(const std::string& name) const;

  // Returns the descriptor of the connection of this name. Returns nothing if it has been closed.
  std::optional<int> Find(const std::string& name) const;

 private:
  struct Socket {
    dev_t device;
    ino_t inode;
    std::string peer;
    std::string name;
  };

  static bool IsOpen(int fd, const Socket& socket);

  std::map<int, Socket> sockets_;                 // By descriptor.
  std::unordered_map<std::string, int> by_name_;  // The descriptors of the sockets_ with names.
};

}  // namespace quire

#endif  // QUIRE_SERVING_CONNECTION_TABLE_H_
