// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/check.h"

namespace quire {
namespace {

// Bytes of a direction that may wait in the proxy. At this limit it stops reading, as a full network would.
constexpr size_t kMaxWaitingBytes = 1 << 20;
constexpr size_t kReadBytes = 64 << 10;

// Returns a socket that is connected to `target`, or -1.
int Connect(const std::string& target) {
  absl::string_view rest = target;
  int fd = -1;
  int result = -1;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (rest.size() >= sizeof(address.sun_path)) return -1;
    std::copy(rest.begin(), rest.end(), address.sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } else if (absl::ConsumePrefix(&rest, "127.0.0.1:")) {
    int port = 0;
    if (!absl::SimpleAtoi(rest, &port)) return -1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  } else {
    return -1;
  }
  // On the loopback address, a connection exists at once or is refused at once.
  if (result == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

void Close(int (&fds)[2]) {
  for (const int fd : fds) {
    if (fd < 0) continue;
    // The other end of a TCP connection learns it by a reset, so that it does not take the end for an orderly one.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(fd);
  }
}

}  // namespace

struct FaultProxy::Connection {
  struct Chunk {
    std::string bytes;
    absl::Time due;
  };
  // What goes in one direction.
  struct Stream {
    std::deque<Chunk> chunks;
    size_t num_written = 0;  // Of the first chunk.
    size_t num_waiting = 0;  // Bytes in all chunks that are not written.
    bool has_ended = false;  // The sender sends nothing more.
    bool is_closed = false;  // The receiver knows it.
    bool has_lost_bytes = false;
  };

  int fds[2];  // Sockets of the client and of the server, by the direction of what is read there. -1: no server.
  Stream streams[2];
};

FaultProxy::FaultProxy(const std::string& target) : target_(target) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  QUIRE_CHECK_GE(listener_, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  QUIRE_CHECK_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  QUIRE_CHECK_EQ(listen(listener_, 128), 0);
  socklen_t size = sizeof(address);
  QUIRE_CHECK_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  QUIRE_CHECK_GE(wake_, 0);
  thread_ = std::thread([this] { Run(); });
}

FaultProxy::~FaultProxy() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  Wake();
  thread_.join();
  close(listener_);
  close(wake_);
}

void FaultProxy::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof(one));
}

void FaultProxy::SetTarget(const std::string& target) {
  const MutexLock lock(&mutex_);
  target_ = target;
}

void FaultProxy::Cut() {
  const MutexLock lock(&mutex_);
  for (Connection& connection : connections_) Close(connection.fds);
  connections_.clear();
  Wake();
}

void FaultProxy::Delay(Direction direction, absl::Duration delay) {
  const MutexLock lock(&mutex_);
  trouble_[direction].delay = delay;
  Wake();
}

void FaultProxy::Hold(Direction direction) {
  const MutexLock lock(&mutex_);
  trouble_[direction].holds = true;
  Wake();
}

void FaultProxy::Swallow(Direction direction) {
  const MutexLock lock(&mutex_);
  trouble_[direction].swallows = true;
  Wake();
}

void FaultProxy::AcceptAndSwallow() {
  const MutexLock lock(&mutex_);
  accepts_and_swallows_ = true;
}

void FaultProxy::RefuseNext(int n) {
  const MutexLock lock(&mutex_);
  num_to_refuse_ = n;
}

void FaultProxy::Heal() {
  const MutexLock lock(&mutex_);
  num_to_refuse_ = 0;
  for (Trouble& trouble : trouble_) trouble = Trouble();
  accepts_and_swallows_ = false;
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (it->fds[1] < 0 || it->streams[0].has_lost_bytes || it->streams[1].has_lost_bytes) {
      Close(it->fds);
      it = connections_.erase(it);
    } else {
      ++it;
    }
  }
  Wake();
}

FaultProxy::Counts FaultProxy::counts() const {
  const MutexLock lock(&mutex_);
  Counts counts = counts_;
  counts.open = static_cast<int>(connections_.size());
  return counts;
}

void FaultProxy::Run() {
  std::vector<pollfd> polled;
  while (true) {
    polled = {{.fd = listener_, .events = POLLIN, .revents = 0}, {.fd = wake_, .events = POLLIN, .revents = 0}};
    absl::Time next_due = absl::InfiniteFuture();
    {
      const MutexLock lock(&mutex_);
      if (is_stopping_) break;
      Accept();
      const absl::Time now = absl::Now();
      for (auto it = connections_.begin(); it != connections_.end();) {
        if (Pump(&*it, now)) {
          ++it;
        } else {
          Close(it->fds);
          it = connections_.erase(it);
        }
      }
      for (const Connection& connection : connections_) {
        for (const int direction : {kToServer, kToClient}) {
          const Connection::Stream& stream = connection.streams[direction];
          const int from = connection.fds[direction];
          const int to = connection.fds[1 - direction];
          if (from >= 0 && !stream.has_ended && stream.num_waiting < kMaxWaitingBytes) {
            polled.push_back({.fd = from, .events = POLLIN, .revents = 0});
          }
          if (stream.chunks.empty() || trouble_[direction].holds) continue;
          if (stream.chunks.front().due > now) {
            next_due = std::min(next_due, stream.chunks.front().due);
          } else if (to >= 0) {
            polled.push_back({.fd = to, .events = POLLOUT, .revents = 0});
          }
        }
      }
    }
    int timeout_ms = -1;
    if (next_due != absl::InfiniteFuture()) {
      timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(std::max(next_due - absl::Now(), absl::ZeroDuration())));
      ++timeout_ms;
    }
    poll(polled.data(), polled.size(), timeout_ms);
    uint64_t ignored;
    (void)!read(wake_, &ignored, sizeof(ignored));
  }
  const MutexLock lock(&mutex_);
  for (Connection& connection : connections_) Close(connection.fds);
  connections_.clear();
}

void FaultProxy::Accept() {
  while (true) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) return;
    const int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const bool is_refused = num_to_refuse_ > 0;
    if (is_refused) --num_to_refuse_;
    const int server = accepts_and_swallows_ || is_refused ? -1 : Connect(target_);
    if (is_refused || (server < 0 && !accepts_and_swallows_)) {
      int fds[2] = {client, -1};
      Close(fds);
      continue;
    }
    ++counts_.connections;
    connections_.push_back({.fds = {client, server}, .streams = {}});
  }
}

bool FaultProxy::Pump(Connection* connection, absl::Time now) {
  if (!PumpDirection(connection, kToServer, now) || !PumpDirection(connection, kToClient, now)) return false;
  return !connection->streams[kToServer].is_closed || !connection->streams[kToClient].is_closed;
}

bool FaultProxy::PumpDirection(Connection* connection, int direction, absl::Time now) {
  Connection::Stream& stream = connection->streams[direction];
  const Trouble& trouble = trouble_[direction];
  const int from = connection->fds[direction];
  const int to = connection->fds[1 - direction];
  while (from >= 0 && !stream.has_ended && stream.num_waiting < kMaxWaitingBytes) {
    std::string bytes(kReadBytes, '\0');
    const ssize_t size = read(from, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (size < 0) return false;
    if (size == 0) {
      stream.has_ended = true;
    } else if (to < 0 || trouble.swallows) {
      stream.has_lost_bytes = true;
    } else {
      bytes.resize(static_cast<size_t>(size));
      stream.num_waiting += bytes.size();
      stream.chunks.push_back({std::move(bytes), now + trouble.delay});
    }
  }
  if (to < 0) return !stream.has_ended;
  while (!stream.chunks.empty() && !trouble.holds && stream.chunks.front().due <= now) {
    const std::string& bytes = stream.chunks.front().bytes;
    const ssize_t size = send(to, bytes.data() + stream.num_written, bytes.size() - stream.num_written, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) break;
    if (size < 0) return false;
    counts_.bytes[direction] += size;
    stream.num_waiting -= static_cast<size_t>(size);
    stream.num_written += static_cast<size_t>(size);
    if (stream.num_written < bytes.size()) continue;
    stream.chunks.pop_front();
    stream.num_written = 0;
  }
  // An end vanishes as bytes do.
  if (stream.has_ended && stream.chunks.empty() && !stream.is_closed && !stream.has_lost_bytes && !trouble.holds &&
      !trouble.swallows) {
    shutdown(to, SHUT_WR);
    stream.is_closed = true;
  }
  return true;
}

}  // namespace quire
