#include "serving/connection_table.h"

#include <sys/stat.h>

#include <algorithm>

namespace quire {

void ConnectionTable::Add(int fd, const std::string& peer) {
  struct stat file;
  if (fstat(fd, &file) == 0) sockets_[fd] = {file.st_dev, file.st_ino, peer};
}

void ConnectionTable::RemoveClosed() {
  std::erase_if(sockets_, [](const auto& entry) {
    const auto& [fd, socket] = entry;
    struct stat file;
    return fstat(fd, &file) != 0 || file.st_dev != socket.device || file.st_ino != socket.inode;
  });
}

int ConnectionTable::CountOf(const std::string& peer) const {
  return static_cast<int>(
      std::count_if(sockets_.begin(), sockets_.end(), [&](const auto& entry) { return entry.second.peer == peer; }));
}

}  // namespace quire
