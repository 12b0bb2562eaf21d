// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_TURN_QUEUE_H_
#define QUIRE_SERVING_TURN_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"

namespace quire {

// Lets what makes much work for a server happen one after the other, so that time is left for everything else. Each
// turn has a price, an estimate of the time that it takes the server, and the next turn comes when this time has
// passed. It goes to the address that has paid least while there was a queue. A thread of its own runs the turns.
// Thread-safe.
class TurnQueue {
 public:
  // After a pause, turns of this price come at once.
  static constexpr int64_t kBurstUs = 10'000;
  // The next turn comes after this time at the latest, whatever the work before it costs.
  static constexpr int64_t kMaxWaitUs = 250'000;
  // Charges put an address back by at most this, so that it gets turns again while there is a queue.
  static constexpr int64_t kMaxDebtUs = 2'000'000;

  // Turns worth `num_lanes` microseconds come in a microsecond.
  explicit TurnQueue(int num_lanes);
  // Turns that still wait do not run.
  ~TurnQueue();

  // Takes a turn at once if nobody waits for one and the time of the earlier turns has passed.
  bool TryTake(int64_t price_us) QUIRE_EXCLUDES(mutex_);
  // Runs `turn` soon. It must not block.
  void Push(const std::string& address, int64_t price_us, std::function<void()> turn) QUIRE_EXCLUDES(mutex_);
  // Lets an address pay for work that had no turn. Further turns of all addresses wait for it.
  void Charge(const std::string& address, int64_t price_us) QUIRE_EXCLUDES(mutex_);

 private:
  struct Turn {
    int64_t price_us = 0;
    std::function<void()> run;
  };
  struct Address {
    std::deque<Turn> turns;
    int64_t paid_us = 0;
  };

  void Run() QUIRE_EXCLUDES(mutex_);
  // Waits for the next turn. The result has no function when the thread must end.
  Turn Next() QUIRE_EXCLUDES(mutex_);
  // Returns the address. One that has not waited for turns counts as if it had paid the same as the others.
  Address& Find(const std::string& address) QUIRE_REQUIRES(mutex_);
  Turn Pop() QUIRE_REQUIRES(mutex_);
  void Wait(int64_t price_us, int64_t now_us) QUIRE_REQUIRES(mutex_);

  const int num_lanes_;
  Mutex mutex_;
  CondVar changed_;
  absl::flat_hash_map<std::string, Address> addresses_ QUIRE_GUARDED_BY(mutex_);  // Since there is a queue.
  size_t num_waiting_ QUIRE_GUARDED_BY(mutex_) = 0;                               // Turns.
  int64_t waiting_since_us_ QUIRE_GUARDED_BY(mutex_) = 0;  // The time of the latest turn, or since one waits.
  // What a new address counts as having paid. It grows with each turn, so that addresses that wait come before those
  // that have never been seen.
  int64_t paid_us_ QUIRE_GUARDED_BY(mutex_) = 0;
  int64_t next_us_ QUIRE_GUARDED_BY(mutex_) = 0;  // The next turn does not come before.
  bool is_ending_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_TURN_QUEUE_H_
