// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_GUARDED_PORT_H_
#define QUIRE_SERVING_GUARDED_PORT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/mutex.h"
#include "serving/client_hello.h"
#include "serving/frame_guard.h"
#include "serving/read_budget.h"

namespace quire {

class GuardedConnection;

// Limits the memory that the connections of a port hold, by the estimate of FrameGuard. Thread-safe.
class GuardedPort {
 public:
  // All connections may hold `max_held_bytes`, and one of them half of it. `name` is the name of the port in logs.
  GuardedPort(std::string name, int64_t max_held_bytes);

  // Number of connections that were ended, for what they sent or held.
  int64_t num_ended() const { return num_ended_; }

  // Calls of which clients want nothing any more, because they have reset them, have their answer or have closed the
  // connection, and which the server still has to end. Beyond the first number, further connections wait. Beyond the
  // second, the connection that has begun most calls since then is ended.
  static constexpr int64_t kMaxAbandonedCalls = 1024;
  static constexpr int64_t kFarTooManyAbandonedCalls = 4096;
  // What a new connection costs in turns (see TurnQueue), and what one that is ended costs in addition. So an attacker
  // who connects repeatedly leaves time for others.
  static constexpr int64_t kConnectionPriceUs = 1'000;
  static constexpr int64_t kEndedPriceUs = 4'000;

  // A call has begun in the server or has ended there.
  void AddCalls(int count) { num_calls_ += count; }
  // Whether further connections must wait now.
  bool MustWait() QUIRE_EXCLUDES(mutex_);

 private:
  friend class GuardedConnection;
  struct Warnings;

  struct Held {
    int64_t bytes = 0;
    int64_t streams = 0;
    int64_t calls = 0;         // Begun so far.
    int64_t calls_before = 0;  // Calls begun before too many were abandoned.
  };

  static Held HeldBy(const FrameGuard& guard) { return {guard.held_bytes(), guard.num_streams(), guard.num_calls()}; }
  int64_t num_abandoned_calls() const QUIRE_REQUIRES(mutex_) { return num_calls_ - sum_.streams; }
  // While all connections hold too much, ends the one that holds most. The connection holds its own mutex, so that the
  // newest value is stored last. Nothing here takes the mutex of a connection.
  void SetHeld(GuardedConnection* connection, const Held& held) QUIRE_EXCLUDES(mutex_);
  void EndGreedyConnections() QUIRE_EXCLUDES(mutex_);
  // While there are far too many abandoned calls, ends the connection that has begun most.
  void CheckAbandonedCalls() QUIRE_EXCLUDES(mutex_);
  // Ends a connection for what the client has sent.
  void Refuse(GuardedConnection* connection, absl::string_view reason) QUIRE_EXCLUDES(mutex_);
  void Forget(GuardedConnection* connection) QUIRE_EXCLUDES(mutex_);
  // The server has to end the calls of this connection.
  void ChargeForCalls(GuardedConnection* connection) QUIRE_REQUIRES(mutex_);
  void Replace(GuardedConnection* connection, const Held& held) QUIRE_REQUIRES(mutex_);
  // Ends a connection and counts nothing of it any more.
  void End(GuardedConnection* connection, absl::string_view reason, Warnings* warnings) QUIRE_REQUIRES(mutex_);
  // Counts a connection that is ended.
  void Count(const std::string& peer, absl::string_view reason, Warnings* warnings) QUIRE_REQUIRES(mutex_);

  const std::string name_;
  const int64_t max_held_bytes_;
  std::atomic<int64_t> num_ended_{0};
  std::atomic<int64_t> num_calls_{0};
  LogLimiter log_limiter_;
  Mutex mutex_;
  // Without those that have been ended.
  absl::flat_hash_map<GuardedConnection*, Held> held_ QUIRE_GUARDED_BY(mutex_);
  Held sum_ QUIRE_GUARDED_BY(mutex_);
  bool has_too_many_abandoned_ QUIRE_GUARDED_BY(mutex_) = false;
};

// One connection of a port. Thread-safe.
class GuardedConnection : public std::enable_shared_from_this<GuardedConnection> {
 public:
  // `fd` is its socket, which is shut down when the connection is ended, or -1. `peer` is the address of the client, or
  // empty for a unix socket.
  GuardedConnection(std::shared_ptr<GuardedPort> port, std::string peer, int fd);
  ~GuardedConnection();
  GuardedConnection(const GuardedConnection&) = delete;
  GuardedConnection& operator=(const GuardedConnection&) = delete;

  // Whether nothing that the client sends may be read any more.
  bool is_ended() const { return is_ended_; }

  // Returns how many bytes may be read from the socket now. When these are none, a turn comes soon, and with it the
  // socket becomes readable again.
  size_t BytesToRead() QUIRE_EXCLUDES(mutex_);

  // The socket has brought these bytes. Without TLS, they are what the client has sent. Returns the random bytes of a
  // client with TLS when they have come.
  std::optional<std::string> ReceiveFromSocket(absl::string_view bytes) QUIRE_EXCLUDES(mutex_);
  // The client has sent these bytes, without TLS. Ends the connection if it must not have sent them.
  void Receive(absl::string_view bytes) QUIRE_EXCLUDES(mutex_);

  // Runs `send`, which sends bytes to the client and shows them to the guard. An answer of the client is handled after
  // that.
  void Send(const std::function<void(FrameGuard* guard)>& send) QUIRE_EXCLUDES(mutex_);
  // A call of the connection makes this work, beyond its frames. It is paid with the next turns.
  void AddWork(int64_t work_us) QUIRE_EXCLUDES(mutex_);
  // Whether the socket speaks TLS.
  bool has_tls() const { return has_tls_; }
  // Ends the connection for what the client has sent.
  void Refuse(absl::string_view reason) { port_->Refuse(this, reason); }

 private:
  friend class GuardedPort;

  // Shuts the socket down. Does not take mutex_.
  void ShutDown();
  // Lets the connection be read again.
  void TakeTurn() QUIRE_EXCLUDES(mutex_);

  const std::shared_ptr<GuardedPort> port_;
  const std::string peer_;
  const int fd_;
  std::atomic<bool> is_ended_{false};
  Mutex mutex_;  // Taken before the mutex of the port.
  FrameGuard guard_ QUIRE_GUARDED_BY(mutex_);
  ReadBudget budget_ QUIRE_GUARDED_BY(mutex_);
  bool waits_for_turn_ QUIRE_GUARDED_BY(mutex_) = false;
  std::optional<ClientHello> hello_ QUIRE_GUARDED_BY(mutex_);  // Of a client with TLS.
  bool has_bytes_ QUIRE_GUARDED_BY(mutex_) = false;            // The socket has brought some.
  std::atomic<bool> has_tls_{false};
};

}  // namespace quire

#endif  // QUIRE_SERVING_GUARDED_PORT_H_
