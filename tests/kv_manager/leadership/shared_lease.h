// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_LEADERSHIP_SHARED_LEASE_H_
#define QUIRE_TESTS_KV_MANAGER_LEADERSHIP_SHARED_LEASE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kv_manager/leadership/lease_store.h"

namespace quire {

// A lease in this process. Thread-safe.
class SharedLease {
 public:
  // `clock` is borrowed.
  SharedLease(absl::Duration duration, const Clock* clock)
      : duration_us_(absl::ToInt64Microseconds(duration)), clock_(clock) {}

  // Takes or extends the lease for a candidate, whose number is above 0.
  LeaseHolder Take(int candidate) {
    const MutexLock lock(&mutex_);
    if (holder_ != candidate && holder_ != 0 && clock_->NowMicros() < end_us_) return {.address = Address()};
    if (holder_ != candidate) ++term_;
    holder_ = candidate;
    end_us_ = clock_->NowMicros() + duration_us_;
    return {.is_me = true, .term = term_, .address = Address()};
  }
  bool Extend(int candidate) {
    const MutexLock lock(&mutex_);
    if (holder_ != candidate) return false;
    end_us_ = clock_->NowMicros() + duration_us_;
    return true;
  }
  void Free(int candidate) {
    const MutexLock lock(&mutex_);
    if (holder_ == candidate) holder_ = 0;
  }
  int holder() const {
    const MutexLock lock(&mutex_);
    return holder_;
  }

 private:
  std::string Address() const QUIRE_REQUIRES(mutex_) { return absl::StrCat("manager", holder_, ":1"); }

  const int64_t duration_us_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  int holder_ QUIRE_GUARDED_BY(mutex_) = 0;
  uint64_t term_ QUIRE_GUARDED_BY(mutex_) = 0;
  int64_t end_us_ QUIRE_GUARDED_BY(mutex_) = 0;
};

// The way of one candidate to the lease, which a test can cut.
class LeaseAccess : public LeaseStore {
 public:
  LeaseAccess(SharedLease* lease, int candidate) : lease_(lease), candidate_(candidate) {}

  void Cut(bool is_cut) {
    const MutexLock lock(&mutex_);
    is_cut_ = is_cut;
  }

  // The calls to take the lease reach it, but their answers are lost.
  void LoseAnswers() {
    const MutexLock lock(&mutex_);
    loses_answers_ = true;
  }
  // Called before each call to take the lease, and before the one that gives it back. Set before the first call.
  void BeforeTake(std::function<void()> hook) { before_take_ = std::move(hook); }
  void BeforeRelease(std::function<void()> hook) { before_release_ = std::move(hook); }

  absl::StatusOr<LeaseHolder> TryAcquire(absl::Duration /*timeout*/) override {
    if (before_take_ != nullptr) before_take_();
    if (IsCut()) return absl::UnavailableError("the wire is cut");
    const LeaseHolder holder = lease_->Take(candidate_);
    const MutexLock lock(&mutex_);
    if (loses_answers_) return absl::UnavailableError("the answer is lost");
    return holder;
  }
  absl::Status Renew(absl::Duration /*timeout*/) override {
    if (IsCut()) return absl::UnavailableError("the wire is cut");
    return lease_->Extend(candidate_) ? absl::OkStatus() : absl::AbortedError("another manager holds it");
  }
  absl::Status Release(absl::Duration /*timeout*/) override {
    if (before_release_ != nullptr) before_release_();
    lease_->Free(candidate_);
    return absl::OkStatus();
  }

 private:
  bool IsCut() const {
    const MutexLock lock(&mutex_);
    return is_cut_;
  }

  SharedLease* const lease_;
  const int candidate_;
  std::function<void()> before_take_;
  std::function<void()> before_release_;
  mutable Mutex mutex_;
  bool is_cut_ QUIRE_GUARDED_BY(mutex_) = false;
  bool loses_answers_ QUIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_LEADERSHIP_SHARED_LEASE_H_
