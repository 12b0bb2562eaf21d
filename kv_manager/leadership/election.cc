// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/leadership/election.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"

namespace quire {
namespace {

// The parts of the lease's duration: for one call, between two renewals, and between two looks at a lease that another
// manager holds. The last one is short, because it delays a new leader.
constexpr int kCallPart = 3;
constexpr int kRenewalPart = 3;
constexpr int kLookPart = 8;
// The pause after a failed call while this manager leads.
constexpr int kRetryPart = 12;

}  // namespace

Election::Election(absl::Duration lease, LeaseStore* store, const Clock* clock)
    : lease_us_(absl::ToInt64Microseconds(lease)), store_(store), clock_(clock) {}

absl::Duration Election::Round() {
  QUIRE_CHECK(state_ != State::kOver);
  return state_ == State::kLeading ? Lead() : Wait();
}

absl::Duration Election::Wait() {
  const int64_t started_us = clock_->NowMicros();
  const absl::StatusOr<LeaseHolder> holder = store_->TryAcquire(absl::Microseconds(lease_us_ / kCallPart));
  Note(holder.status());
  if (!holder.ok()) return absl::Microseconds(lease_us_ / kLookPart);
  const MutexLock lock(&mutex_);
  if (!holder->is_me) {
    if (holder->address != status_.leader && !holder->address.empty()) {
      QUIRE_LOG(kInfo) << "standing by: the leader is " << Named("leader", holder->address);
    }
    status_.leader = holder->address;
    return absl::Microseconds(lease_us_ / kLookPart);
  }
  Extend(started_us);
  // An answer that took too long is worth nothing. The next call extends the lease.
  if (!MayLead()) return absl::ZeroDuration();
  status_.is_leader = true;
  status_.leader = holder->address;
  status_.term = holder->term;
  state_ = State::kLeading;
  return absl::Microseconds(lease_us_ / kRenewalPart);
}

absl::Duration Election::Lead() {
  const int64_t started_us = clock_->NowMicros();
  const int64_t left_us = leads_until_us_ - started_us;
  if (left_us <= 0) {
    const absl::Status last = status().last_call;
    return End(absl::DeadlineExceededError(absl::StrCat(
        "the lease was not renewed in time",
        last.ok() ? ": the process or the machine was paused" : absl::StrCat("; the last error: ", last.message()))));
  }
  const absl::Status renewed = store_->Renew(absl::Microseconds(std::min(lease_us_ / kCallPart, left_us)));
  Note(renewed);
  if (absl::IsAborted(renewed)) return End(renewed);
  if (renewed.ok()) {
    // Plans may have been held back since then, so an answer that took too long ends the leadership as well.
    if (!MayLead()) return End(absl::DeadlineExceededError("the answer to the renewal of the lease came too late"));
    Extend(started_us);
    return absl::Microseconds(lease_us_ / kRenewalPart);
  }
  const int64_t rest_us = std::max(leads_until_us_ - clock_->NowMicros(), int64_t{0});
  return absl::Microseconds(std::min(lease_us_ / kRetryPart, rest_us));
}

void Election::Resign() {
  leads_until_us_ = 0;
  const MutexLock lock(&mutex_);
  if (status_.is_leader) status_.leader.clear();
  status_.is_leader = false;
}

absl::Duration Election::End(absl::Status reason) {
  Resign();
  end_ = std::move(reason);
  state_ = State::kOver;
  return absl::ZeroDuration();
}

void Election::Note(const absl::Status& result) {
  const MutexLock lock(&mutex_);
  if (!result.ok()) ++status_.failed_calls;
  const bool is_new = result.code() != status_.last_call.code();
  status_.last_call = result;
  if (!is_new) return;
  if (result.ok()) {
    QUIRE_LOG(kInfo) << "the lease can be reached again";
  } else {
    QUIRE_LOG(kWarning) << "the lease cannot be " << (status_.is_leader ? "renewed: " : "read: ") << result.message();
  }
}

ElectionStatus Election::status() const {
  const MutexLock lock(&mutex_);
  return status_;
}

}  // namespace quire
