// SPDX-License-Identifier: Apache-2.0

#include "serving/connection_table.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

namespace quire {
namespace {

// The beginning of the kernel's struct tcp_info (linux/tcp.h), up to and with tcpi_bytes_received, at byte 128. The
// struct of netinet/tcp.h ends before.
using TcpInfo = std::array<int64_t, 17>;

}  // namespace

bool ConnectionTable::IsOpen(int fd, const Socket& socket) {
  struct stat file;
  return fstat(fd, &file) == 0 && file.st_dev == socket.device && file.st_ino == socket.inode;
}

void ConnectionTable::Add(int fd, const std::string& peer, const std::string& name) {
  struct stat file;
  if (fstat(fd, &file) != 0) return;
  if (const auto it = sockets_.find(fd); it != sockets_.end()) by_name_.erase(it->second.name);
  if (const auto it = by_name_.find(name); it != by_name_.end()) sockets_.erase(it->second);
  sockets_[fd] = {file.st_dev, file.st_ino, peer, name};
  if (!name.empty()) by_name_[name] = fd;
}

void ConnectionTable::RemoveClosed() {
  std::erase_if(sockets_, [this](const auto& entry) {
    const auto& [fd, socket] = entry;
    if (IsOpen(fd, socket)) return false;
    by_name_.erase(socket.name);
    return true;
  });
}

int ConnectionTable::CountOf(const std::string& peer) const {
  return static_cast<int>(
      std::count_if(sockets_.begin(), sockets_.end(), [&](const auto& entry) { return entry.second.peer == peer; }));
}

std::optional<int> ConnectionTable::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  // Another connection may have got the descriptor.
  if (found == by_name_.end() || !IsOpen(found->second, sockets_.at(found->second))) return std::nullopt;
  return found->second;
}

std::optional<int64_t> ConnectionTable::ReceivedBytes(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  const int fd = found->second;
  TcpInfo info;
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < sizeof(info)) return std::nullopt;
  // Another connection may have got the descriptor.
  if (!IsOpen(fd, sockets_.at(fd))) return std::nullopt;
  return info.back();
}

}  // namespace quire
