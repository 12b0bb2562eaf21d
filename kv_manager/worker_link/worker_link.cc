// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/worker_link.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace quire {
namespace {

// Number of attempts to adopt that may break. One that the worker refuses does not count.
constexpr int kMaxBrokenAdoptions = 3;
// Number of failed attempts to adopt until which clients wait, also attempts that the worker has refused.
constexpr int kMaxAwaitedAdoptions = 3;

// A step that takes longer than the slowest one of late by this factor hangs.
constexpr int64_t kSlowSteps = 20;
// The limit for a slow worker, and that before its first result, in multiples of the timeout.
constexpr int64_t kMaxTimeouts = 10;
constexpr int64_t kFirstTimeouts = 4;
// The slowest step counts for less with each step that follows it: by this part.
constexpr int64_t kForgetting = 64;

// A timeout may be as long as an integer allows.
int64_t Times(int64_t factor, int64_t us) {
  return us > std::numeric_limits<int64_t>::max() / 4 / factor ? std::numeric_limits<int64_t>::max() / 4 : factor * us;
}

}  // namespace

WorkerLink::WorkerLink(const WorkerLinkOptions& options, std::unique_ptr<WorkerClient> client)
    : options_(options),
      client_(std::move(client)),
      epoch_(options.first_epoch - 1),
      num_adoptions_left_(options.adopts ? kMaxBrokenAdoptions : 0),
      backoff_us_(options.min_backoff_us),
      last_error_(absl::UnavailableError("not connected yet")) {}

absl::Status WorkerLink::Poll(int64_t now_us) {
  if (now_us < next_poll_us()) return absl::OkStatus();
  switch (state_) {
    case State::kWaiting:
      ++epoch_;
      num_steps_ = 0;
      attempt_started_us_ = now_us;
      state_ = State::kDescribing;
      client_->Describe(epoch_);
      return absl::OkStatus();
    case State::kDescribing:
    case State::kOpening:
      return absl::DeadlineExceededError(
          absl::StrCat("worker did not open the session within ", options_.connect_timeout_us / 1000, " ms"));
    case State::kReady:
      if (now_us < progress_us_ + StepLimitUs(now_us)) {
        // When this process was paused itself, answers may have come that it has not read.
        const bool is_late = now_us >= next_probe_us_ + options_.probe_interval_us;
        if (!unanswered_probe_us_.has_value() || is_late) unanswered_probe_us_ = now_us;
        next_probe_us_ = now_us + options_.probe_interval_us;
        client_->Probe(epoch_);
        return absl::OkStatus();
      }
      return absl::DeadlineExceededError(
          absl::StrCat("worker did not answer a plan within ", StepLimitUs(now_us) / 1000, " ms"));
  }
  return absl::OkStatus();
}

int64_t WorkerLink::next_poll_us() const {
  switch (state_) {
    case State::kWaiting:
      return next_attempt_us_;
    case State::kDescribing:
    case State::kOpening:
      return attempt_started_us_ + options_.connect_timeout_us;
    case State::kReady:
      break;
  }
  if (num_in_flight_ == 0) return std::numeric_limits<int64_t>::max();
  // When the process turns out to be silent, the limit becomes shorter. The next probe is soon enough to notice that.
  return std::min(progress_us_ + StepLimitUs(progress_us_), next_probe_us_);
}

void WorkerLink::OnDescribed(const WorkerDescription& worker) {
  QUIRE_CHECK(state_ == State::kDescribing);
  state_ = State::kOpening;
  const bool was_replaced = has_been_ready_ && worker.has_session;
  if (!was_replaced) epoch_ = std::max(epoch_, worker.last_epoch + 1);
  client_->Open(epoch_, num_adoptions_left_ > 0);
}

void WorkerLink::Refuse(const absl::Status& reason) {
  client_->Refuse(std::string(reason.message()));
}

void WorkerLink::OnOpened() {
  QUIRE_CHECK(state_ == State::kOpening);
  state_ = State::kReady;
  num_adoptions_left_ = 0;
  has_been_ready_ = true;
  last_error_ = absl::OkStatus();
}

void WorkerLink::Lose(absl::Status reason, int64_t now_us) {
  client_->Close();
  // A session that ends while it has nothing to do is no sign of a sick worker.
  if (is_ready() && num_in_flight_ == 0) backoff_us_ = options_.min_backoff_us;
  const bool is_away = state_ == State::kDescribing && absl::IsUnavailable(reason);
  if (!is_away) away_since_us_.reset();
  if (is_away && !away_since_us_.has_value()) away_since_us_ = now_us;
  const bool may_restart = is_away && now_us < *away_since_us_ + options_.restart_us;
  const int64_t max_backoff_us =
      may_restart ? std::min(options_.max_restart_backoff_us, options_.max_backoff_us) : options_.max_backoff_us;
  if (state_ == State::kOpening && num_adoptions_left_ > 0) {
    // The worker keeps its rows when a connection breaks. An inventory that was wrong once is not asked for again. A
    // worker that refuses the session has not begun with it: another manager was faster, or leads still.
    if (absl::IsInternal(reason)) {
      num_adoptions_left_ = 0;
    } else if (!absl::IsFailedPrecondition(reason)) {
      --num_adoptions_left_;
    }
    adopts_again_ = num_adoptions_left_ > 0 && ++num_failed_adoptions_ < kMaxAwaitedAdoptions;
  } else {
    adopts_again_ = false;
  }
  state_ = State::kWaiting;
  last_error_ = std::move(reason);
  num_in_flight_ = 0;
  unanswered_probe_us_.reset();
  next_attempt_us_ = now_us + std::min(backoff_us_, max_backoff_us);
  // A loss after a restart continues with the earlier backoff.
  backoff_us_ = std::max(backoff_us_, std::min(backoff_us_ * 2, max_backoff_us));
}

void WorkerLink::Send(const StepPlan& plan, int64_t now_us) {
  QUIRE_CHECK(is_ready());
  QUIRE_CHECK_LT(num_in_flight_, kMaxPlansInFlight);
  if (num_in_flight_ == 0) NoteProgress(now_us);
  in_flight_[num_in_flight_++] = {.sent_us = now_us, .num_tokens = plan.num_tokens()};
  client_->Send(plan);
}

void WorkerLink::SetPlanningTime(int64_t us, int64_t cpu_us) {
  QUIRE_CHECK_GT(num_in_flight_, 0);
  in_flight_[num_in_flight_ - 1].planning_us = us;
  in_flight_[num_in_flight_ - 1].planning_cpu_us = cpu_us;
}

WorkerLink::SentPlan WorkerLink::OnResult(int64_t now_us) {
  QUIRE_CHECK_GT(num_in_flight_, 0);
  const SentPlan answered = in_flight_[0];
  std::copy(in_flight_ + 1, in_flight_ + num_in_flight_, in_flight_);
  --num_in_flight_;
  ++num_steps_;
  slowest_us_ = std::max(now_us - progress_us_, slowest_us_ - slowest_us_ / kForgetting);
  NoteProgress(now_us);
  // A worker that answers is healthy. One that accepts a session and dies of its first plan is not: it keeps its
  // backoff.
  backoff_us_ = options_.min_backoff_us;
  return answered;
}

void WorkerLink::NoteProgress(int64_t now_us) {
  progress_us_ = now_us;
  next_probe_us_ = now_us + options_.probe_interval_us;
  unanswered_probe_us_.reset();
}

void WorkerLink::OnProbed(int64_t now_us) {
  unanswered_probe_us_.reset();
  next_probe_us_ = now_us + options_.probe_interval_us;
}

int64_t WorkerLink::StepLimitUs(int64_t now_us) const {
  const int64_t timeout_us = options_.step_timeout_us;
  if (IsSilent(now_us)) return timeout_us;
  if (slowest_us_ == 0) return Times(kFirstTimeouts, timeout_us);
  return std::clamp(Times(kSlowSteps, slowest_us_), timeout_us, Times(kMaxTimeouts, timeout_us));
}

bool WorkerLink::IsSilent(int64_t now_us) const {
  return num_in_flight_ > 0 && unanswered_probe_us_.has_value() &&
         now_us >= *unanswered_probe_us_ + options_.probe_timeout_us;
}

}  // namespace quire
