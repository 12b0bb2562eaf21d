// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LISTENING_SOCKETS_H_
#define QUIRE_BASE_LISTENING_SOCKETS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

// The error of ListeningSockets::Open when another process listens at the address.
inline constexpr char kAddressInUse[] = "it is in use";

// The sockets that listen at one address. They do not block and are closed on exec. Owned by one thread at a time.
class ListeningSockets {
 public:
  // `address` is host:port or unix:path; port 0 takes a free one. A host name may have several addresses, and each of
  // them gets a socket; it is enough that one can be taken. The hosts 0.0.0.0 and [::] mean all addresses of the
  // machine, of IPv4 and of IPv6. The file of a unix socket is replaced when no server listens there. Returns
  // UNAVAILABLE with the reason when the address cannot be taken, for example "it is in use" or "127.0.0.9 is not an
  // address of this machine".
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);

  ListeningSockets() = default;
  ~ListeningSockets() { Close(); }
  ListeningSockets(ListeningSockets&& other) noexcept { *this = std::move(other); }
  ListeningSockets& operator=(ListeningSockets&& other) noexcept;

  // Closes the sockets and removes the file of a unix socket, unless another server has replaced it.
  void Close();

  const std::vector<int>& fds() const { return fds_; }
  // The address with the port that was taken.
  const std::string& address() const { return address_; }
  // 0 for a unix socket.
  int port() const { return port_; }

 private:
  absl::Status OpenUnix(const std::string& path);
  absl::Status OpenTcp(const std::string& host, const std::string& port);
  absl::Status Fail(const std::string& host, int error);

  std::vector<int> fds_;
  std::string address_;
  int port_ = 0;
  std::string path_;       // Path of a unix socket.
  dev_t path_device_ = 0;  // With path_inode_, identifies the file at path_ as ours.
  ino_t path_inode_ = 0;
};

}  // namespace quire

#endif  // QUIRE_BASE_LISTENING_SOCKETS_H_
