// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_LEADERSHIP_ELECTION_H_
#define QUIRE_KV_MANAGER_LEADERSHIP_ELECTION_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kv_manager/leadership/lease_store.h"

namespace quire {

// The state of an election as one candidate sees it.
struct ElectionStatus {
  bool is_leader = false;
  uint64_t term = 0;         // Term of this manager; 0 before it has led.
  std::string leader;        // The address of the leader. It is empty if there is none, or if it is not known.
  int64_t failed_calls = 0;  // Calls of the store that have failed.
  absl::Status last_call;    // The result of the last call of the store.
};

// Decides when this manager leads: it waits for the lease, renews it at every third of its duration, and leads only as
// long as the lease lasts beyond doubt. It counts the age of the lease from the beginning of the last call that has
// renewed it, and stops a tenth of the duration before its end, because clocks can differ in their speed and a plan
// takes a time to arrive.
//
//   waiting --the lease is taken--> leading --the lease is lost or too old--> over
//
// One thread calls Round; the other functions are thread-safe.
class Election {
 public:
  enum class State { kWaiting, kLeading, kOver };

  // All are borrowed. `clock` must also run while the process or the machine sleeps.
  Election(absl::Duration lease, LeaseStore* store, const Clock* clock);

  // Does what is due: tries to take the lease, or renews it. Returns when to call it next, as a time from now. Takes a
  // third of the lease's duration at most. After the state kOver it must not be called again.
  absl::Duration Round();
  // This manager leads no longer, because it is about to give the lease back. Round must not be called again.
  void Resign();
  State state() const { return state_; }
  // Returns why this manager leads no longer. REQUIRES: the state is kOver.
  const absl::Status& end() const { return end_; }

  // Returns whether this manager leads at this moment.
  bool MayLead() const { return clock_->NowMicros() < leads_until_us_; }
  ElectionStatus status() const;

 private:
  absl::Duration Wait();
  absl::Duration Lead();
  // The lease was renewed by a call that began at this time.
  void Extend(int64_t since_us) { leads_until_us_ = since_us + lease_us_ - lease_us_ / 10; }
  absl::Duration End(absl::Status reason);
  // Counts the result of a call, and logs it if the one before was another.
  void Note(const absl::Status& result);

  const int64_t lease_us_;
  LeaseStore* const store_;
  const Clock* const clock_;
  std::atomic<State> state_ = State::kWaiting;
  std::atomic<int64_t> leads_until_us_ = 0;
  absl::Status end_;

  mutable Mutex mutex_;
  ElectionStatus status_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_LEADERSHIP_ELECTION_H_
