// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_RPC_RECEIVE_WATCH_H_
#define QUIRE_KV_MANAGER_RPC_RECEIVE_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"

namespace quire {

struct ReceiveLimits {
  int64_t max_bytes = int64_t{256} << 20;             // Limit for all messages that have not arrived completely.
  int64_t max_connection_bytes = int64_t{128} << 20;  // The same for one connection.
  int64_t max_message_bytes = int64_t{16} << 20;
  size_t max_messages = 8192;  // How many messages may be under way at the same time, without messages of streams.
  absl::Duration timeout = absl::Seconds(30);  // Limit for a message, unless a stream may pause before it.
};

// Limits the memory of messages that are being received, which gRPC cannot do: it checks the size of a message when it
// has arrived completely, and when its own quota is used up, it ends calls of any client.
//
// A call tells the watch when it begins to read a message and when the message has arrived. In between, a thread
// compares the number of bytes that the connection has received with the sizes of the messages that have arrived
// through it. The difference belongs to messages that are under way. When it is too much, the watch ends calls of the
// connection that has sent most. The bytes of TLS and HTTP/2 count as well, so kBytesPerMessage are subtracted for each
// message that has arrived. Nobody knows how many bytes of a message had come when its call failed or was ended. The
// estimate then falls back to its value at the beginning of that message, but by at most --max-message-bytes.
// Thread-safe.
class ReceiveWatch {
 public:
  enum class Wait {
    kLimited,    // The message must arrive within the timeout.
    kUnlimited,  // It is a later message of a stream, which may pause before it.
  };
  // Ends the call with this status. A thread of the watch calls it.
  using EndCall = std::function<void(const absl::Status& status)>;
  // Returns how many bytes the connection from `peer` has received so far, or nothing if that is not known.
  using ByteCounter = std::function<std::optional<int64_t>(const std::string& peer)>;

  // The time between two checks by the thread.
  static constexpr absl::Duration kInterval = absl::Milliseconds(20);
  // The time between two checks while the only calls are streams that may pause, and no bytes come.
  static constexpr absl::Duration kQuietInterval = absl::Milliseconds(200);
  static constexpr int64_t kBytesPerMessage = 2048;

  // With `has_thread` a thread calls Check every kInterval while messages are under way. Tests can do it themselves.
  ReceiveWatch(const ReceiveLimits& limits, const Clock* clock, bool has_thread = true);
  ~ReceiveWatch();
  ReceiveWatch(const ReceiveWatch&) = delete;
  ReceiveWatch& operator=(const ReceiveWatch&) = delete;

  // Without a counter only the number of messages and the time are limited. A counter must outlive all calls.
  void CountBytesWith(ByteCounter counter);

  // A call begins to read a message from `peer`. Returns the id of the message.
  uint64_t Begin(const std::string& peer, Wait wait, EndCall end_call);

  // The message has arrived and has `num_bytes`, or never will (nothing). Returns false when the watch has ended the
  // call, so that the caller must not handle the message.
  bool End(uint64_t id, std::optional<int64_t> num_bytes);

  // Ends the calls that are beyond the limits.
  void Check();

 private:
  struct Connection {
    int num_messages = 0;
    int num_limited = 0;              // Number of them with Wait::kLimited.
    std::optional<int64_t> received;  // The last answer of the counter.
    int64_t arrived = 0;              // Bytes of messages that arrived since then, with their overhead.
    int64_t unfinished = 0;           // Estimate of the bytes of messages that are under way.
    int64_t moved_at_us = 0;          // When bytes have come last, or when the first message began.
    bool is_beyond = false;           // The last check has found too many bytes.
  };
  struct Message {
    std::string peer;
    Wait wait;
    int64_t start_us;
    int64_t unfinished;  // Bytes of the connection when the message began.
    EndCall end_call;
  };
  struct Ended {
    EndCall end_call;
    absl::Status status;
  };

  void Run();
  std::optional<int64_t> Received(const std::string& peer) const QUIRE_REQUIRES(mutex_);
  void CountBytes(int64_t now_us) QUIRE_REQUIRES(mutex_);
  void CountBytesOf(const std::string& peer, Connection* connection, int64_t now_us) QUIRE_REQUIRES(mutex_);
  // The message will not arrive, so its bytes are not under way any more.
  void Forgive(const Message& message, int64_t now_us) QUIRE_REQUIRES(mutex_);
  void EndLateMessages(int64_t now_us, std::vector<Ended>* ended) QUIRE_REQUIRES(mutex_);
  void EndGreedyConnections(int64_t now_us, std::vector<Ended>* ended) QUIRE_REQUIRES(mutex_);
  void EndWhileTooMuch(int64_t now_us, std::vector<Ended>* ended) QUIRE_REQUIRES(mutex_);
  void EndWhileTooMany(int64_t now_us, std::vector<Ended>* ended) QUIRE_REQUIRES(mutex_);
  // Ends the calls of this connection that have read for longer than kInterval, or all if there are none. Streams that
  // may pause are ended only if there is no other call.
  void EndCallsOf(const std::string& peer, int64_t now_us, const absl::Status& status, std::vector<Ended>* ended)
      QUIRE_REQUIRES(mutex_);
  void Remove(uint64_t id) QUIRE_REQUIRES(mutex_);

  const ReceiveLimits limits_;
  const Clock* const clock_;
  LogLimiter log_limiter_;

  mutable Mutex mutex_;
  CondVar changed_;
  ByteCounter counter_ QUIRE_GUARDED_BY(mutex_);
  // The key is the id, which is also the order of their start.
  std::map<uint64_t, Message> messages_ QUIRE_GUARDED_BY(mutex_);
  // They have messages; the key is the peer.
  absl::flat_hash_map<std::string, Connection> connections_ QUIRE_GUARDED_BY(mutex_);
  size_t num_limited_ QUIRE_GUARDED_BY(mutex_) = 0;  // Messages with Wait::kLimited.
  uint64_t next_id_ QUIRE_GUARDED_BY(mutex_) = 1;
  bool is_quiet_ QUIRE_GUARDED_BY(mutex_) = false;   // The last check found it.
  bool is_asleep_ QUIRE_GUARDED_BY(mutex_) = false;  // The thread waits for a message.
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_RECEIVE_WATCH_H_
