// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_LEADERSHIP_LEADERSHIP_H_
#define QUIRE_KV_MANAGER_LEADERSHIP_LEADERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kv_manager/leadership/boot_clock.h"
#include "kv_manager/leadership/election.h"
#include "kv_manager/leadership/lease_store.h"

namespace quire {

// Takes part in the election of a leader with a thread of its own. Thread-safe.
class Leadership {
 public:
  // Called on the thread of the election. They must return soon, because the lease is not renewed meanwhile.
  struct Hooks {
    // This manager leads from now on.
    std::function<void(uint64_t term)> on_elected;
    // It leads no longer, and will not lead again. Another manager may lead already. Not called after Stop has begun.
    std::function<void(const absl::Status& reason)> on_lost;
  };

  // `lease` is the duration of the store's lease. `clock` is borrowed.
  Leadership(absl::Duration lease, std::unique_ptr<LeaseStore> store, Hooks hooks, const Clock* clock = &BootClock());
  ~Leadership();  // Stops.

  Leadership(const Leadership&) = delete;
  Leadership& operator=(const Leadership&) = delete;

  // Starts the thread. Call it at most once.
  void Start();
  // From now on this manager does not begin to lead. Waits until a call of the store that may make it lead has ended,
  // and returns whether it leads. If it does, on_elected has returned, and it leads until Stop.
  bool StopWaiting();
  // Ends the thread, and gives the lease back if this manager holds it. From the moment before, MayLead is false. Takes
  // two thirds of the lease's duration at most, and usually no time. Later calls do nothing.
  void Stop();

  // Returns whether this manager leads at this moment. A process that was paused sees that its lease has ended.
  bool MayLead() const { return election_.MayLead(); }
  ElectionStatus status() const { return election_.status(); }

 private:
  void Run();
  void Elect();
  void Settle();
  // Returns false when this manager must not continue: Stop was called, or StopWaiting before it was elected.
  bool WaitFor(absl::Duration time);

  const absl::Duration lease_;
  const std::unique_ptr<LeaseStore> store_;
  const Hooks hooks_;
  Election election_;

  Mutex mutex_;
  CondVar changed_;
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  bool waits_no_longer_ QUIRE_GUARDED_BY(mutex_) = false;  // StopWaiting was called.
  bool is_settled_ QUIRE_GUARDED_BY(mutex_) = true;        // This manager leads, or will never lead.
  Mutex join_mutex_;
  std::thread thread_ QUIRE_GUARDED_BY(join_mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_LEADERSHIP_LEADERSHIP_H_
