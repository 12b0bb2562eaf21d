#ifndef QUIRE_SERVING_CONNECTION_TABLE_H_
#define QUIRE_SERVING_CONNECTION_TABLE_H_

#include <sys/types.h>

#include <map>
#include <string>

namespace quire {

// The open connections of a port. A library to which a socket is handed over (gRPC) does not say when it closes it, so
// the table asks the kernel: a connection is open as long as its descriptor refers to the same socket, which its inode
// number tells. Not thread-safe.
class ConnectionTable {
 public:
  // Adds an open socket whose peer has this address. An older connection with the same descriptor must have ended.
  void Add(int fd, const std::string& peer);

  // Removes the connections that have been closed. This takes a system call for each connection.
  void RemoveClosed();

  // These count the connections that were open at the latest call of RemoveClosed or were added after it.
  int size() const { return static_cast<int>(sockets_.size()); }
  int CountOf(const std::string& peer) const;

 private:
  struct Socket {
    dev_t device;
    ino_t inode;
    std::string peer;
  };

  std::map<int, Socket> sockets_;  // By descriptor.
};

}  // namespace quire

#endif  // QUIRE_SERVING_CONNECTION_TABLE_H_
