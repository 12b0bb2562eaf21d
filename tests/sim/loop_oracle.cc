// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/loop_oracle.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

// The drain is published in one round, and the session ends in the next.
constexpr int kMaxIdleRounds = 2;

}  // namespace

bool LoopOracle::IsGraceOver(int64_t lost_since_us) const {
  return worker_.grace > 0 && now_us_ >= lost_since_us + worker_.grace * kMicrosPerEvent;
}

bool LoopOracle::IsLate(int64_t limit_us) const {
  return was_ready_ && worker_.timeout > 0 && num_sent_ > num_committed_ && now_us_ >= progress_us_ + limit_us;
}

bool LoopOracle::IsTimeUp() const {
  const int64_t timeout_us = worker_.timeout * kMicrosPerEvent;
  return IsLate(slowest_us_ == 0 ? 4 * timeout_us : std::clamp(20 * slowest_us_, timeout_us, 10 * timeout_us));
}

bool LoopOracle::MayTimeBeUp() const {
  return IsTimeUp() || (was_silent_ && IsLate(worker_.timeout * kMicrosPerEvent));
}

bool LoopOracle::MaySuspectsMove() const {
  return !was_ready_ && worker_.grace > 0 && now_us_ >= lost_since_us_ + worker_.grace * kMicrosPerEvent / 2;
}

void LoopOracle::BeginRound(int64_t now_us, bool is_worker_draining) {
  now_us_ = now_us;
  has_ended_ = false;
  was_pool_replaced_ = false;
  was_generation_replaced_ = false;
  is_worker_draining_ = is_worker_draining;
  is_grace_over_before_ = !was_ready_ && (!has_pool_ || IsGraceOver(lost_since_us_));
}

void LoopOracle::OnPlanSent() {
  if (num_sent_ == num_committed_) {
    progress_us_ = now_us_;
    was_silent_ = is_silent_;
  }
  ++num_sent_;
}

void LoopOracle::OnCommitted() {
  ++num_committed_;
  slowest_us_ = std::max(now_us_ - progress_us_, slowest_us_ - slowest_us_ / 64);
  progress_us_ = now_us_;
  was_silent_ = is_silent_;
}

void LoopOracle::OnSessionEnded(int num_running, int num_live) {
  is_time_up_ = MayTimeBeUp();
  has_ended_ = true;
  num_live_at_end_ = num_live;
  num_in_flight_at_end_ = static_cast<int>(num_sent_ - num_committed_);
  num_interruptions_ += num_running;
  num_sent_ = 0;
  num_committed_ = 0;
}

absl::Status LoopOracle::CheckFailure(const absl::Status& failure, int64_t deadline_us, bool has_started, bool is_ready,
                                      bool is_too_large, bool exceeds_context) const {
  const auto says = [&](const char* text) { return absl::StrContains(failure.message(), text); };
  if (absl::IsDeadlineExceeded(failure)) {
    const bool is_given_up = says("comes before its first token can") && !has_started && deadline_us != kNever;
    if (now_us_ >= deadline_us || is_given_up) return absl::OkStatus();
    return Violation("loop: ", "a request has failed before its deadline");
  }
  if (absl::IsInvalidArgument(failure)) {
    // Such a request was passed on to another worker before it was looked at.
    if (exceeds_context && !has_started && says("another worker cannot continue it")) return absl::OkStatus();
  }
  const bool is_right =
      absl::IsFailedPrecondition(failure)
          ? is_too_large && ((says("came back with another pool") && was_pool_replaced_) ||
                             says("another worker cannot continue it"))
          : absl::IsUnavailable(failure) &&
                ((says("is not connected") && is_grace_over_before_) ||
                 (says("were restarted with another model") && was_generation_replaced_) ||
                 (says("did not come back within") && !is_ready && !has_ended_ && IsGraceOver(lost_since_us_)));
  return is_right ? absl::OkStatus() : Violation("loop: ", "a request has failed: ", failure.ToString());
}

absl::Status LoopOracle::EndRound(const WorkerStatus& status, const WorkerLoad& load, int num_live) {
  const bool is_loss = status.stats.worker_losses > num_losses_;
  if (status.stats.worker_losses - num_losses_ > 1) return Violation("loop: ", "one session was lost twice");
  if (is_loss != (has_ended_ && (is_loss_due_ || is_time_up_))) {
    return Violation("loop: ", "the session ", is_loss ? "was lost without reason" : "was not lost",
                     ", the last error is '", status.last_error, "'");
  }
  if (was_ready_ && !has_ended_ && (is_loss_due_ || IsTimeUp()))
    return Violation("loop: ", "a session continues that must end");
  if (has_ended_ && !is_loss) {
    if (!is_worker_draining_ || num_live_at_end_ > 0 || num_in_flight_at_end_ > 0) {
      return Violation("loop: ", "a session has ended with ", num_live_at_end_, " requests and ", num_in_flight_at_end_,
                       " plans in flight as if the worker had drained");
    }
    // Until then, placement may give the worker new requests.
    if (!is_drain_published_) return Violation("loop: ", "a session has ended before the load told of the drain");
  }
  num_losses_ = status.stats.worker_losses;
  if (was_ready_ && has_ended_ == status.is_ready)
    return Violation("loop: ", "the status says is_ready: ", status.is_ready);
  if (has_ended_) {
    lost_since_us_ = now_us_;
    num_idle_rounds_ = 0;
  }
  if (status.is_ready && static_cast<int64_t>(status.steps) != num_committed_) {
    return Violation("loop: ", status.steps, " steps are counted, ", num_committed_, " were committed");
  }
  if (status.num_plans_in_flight != num_sent_ - num_committed_) {
    return Violation("loop: ", status.num_plans_in_flight, " plans in flight are counted, there are ",
                     num_sent_ - num_committed_);
  }
  const bool may_return = has_pool_ && !status.is_ready && !IsGraceOver(lost_since_us_);
  if (load.may_return != may_return) return Violation("loop: ", "the load says may_return: ", load.may_return);
  if (!status.is_ready && has_pool_ && !may_return && num_live > 0) {
    return Violation("loop: ", num_live, " requests still wait after the grace");
  }
  const bool is_ready = status.is_ready && !is_drain_posted_;
  if (load.is_ready != is_ready) return Violation("loop: ", "the load says is_ready: ", load.is_ready);
  is_drain_published_ = status.is_ready && is_drain_posted_;
  const bool is_drained = status.is_ready && is_drain_posted_ && num_live == 0 && num_sent_ == num_committed_;
  num_idle_rounds_ = is_drained ? num_idle_rounds_ + 1 : 0;
  if (num_idle_rounds_ > kMaxIdleRounds)
    return Violation("loop: ", "the session of a worker that has drained does not end");
  is_loss_due_ = false;
  is_time_up_ = false;
  was_ready_ = status.is_ready;
  return absl::OkStatus();
}

}  // namespace quire
