// SPDX-License-Identifier: Apache-2.0

#include "worker/session_loop.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "worker/rank_digest.h"

namespace quire {
namespace {

// How far an epoch may be ahead of the clock. A manager takes its first epoch from its own clock, and counts on from
// there.
constexpr uint64_t kMaxEpochLeadMs = 24 * 60 * 60 * 1000;

// How long the loop looks at nothing but a busy device, before it looks for another plan.
constexpr std::chrono::microseconds kPollInterval(20);
// Number of intervals (50 ms) after which the loop sleeps between its looks. A sleep takes 40 to 90 us, whatever its
// length, by which the end of a step would be seen later. Steps of decodes end earlier.
constexpr int kBusyPolls = 2500;
constexpr size_t kMaxRefusalBytes = 1024;

StepCounts CountStep(const v1::StepPlan& plan, const v1::StepResult& result) {
  StepCounts counts;
  for (uint32_t num_tokens : plan.slice_num_tokens()) {
    (num_tokens == 1 ? counts.decode_tokens : counts.prefill_tokens) += num_tokens;
  }
  counts.sampled_tokens = result.token_ids_size();
  counts.copied_blocks = plan.copy_sources_size();
  counts.swapped_out_blocks = plan.swap_out_host_blocks_size();
  counts.swapped_in_blocks = plan.swap_in_host_blocks_size();
  counts.rows = plan.slice_rows_size();
  counts.seconds = result.duration_us() * 1e-6;
  return counts;
}

ExchangeCounts CountExchanges(const ExchangeTimes& times) {
  return {.count = times.count, .seconds = std::chrono::duration<double>(times.time).count()};
}

absl::Status TakenOver(uint64_t epoch) {
  return WithReason(absl::AbortedError(absl::StrCat("a session of the newer epoch ", epoch, " took over")),
                    kSessionTakenOver);
}

}  // namespace

SessionLoop::SessionLoop(Executor* executor, WorkerStats* stats, bool binds_threads,
                         std::function<void(bool is_refused)> on_refused, const OrphanHold& orphan_hold,
                         RankGroup* ranks)
    : executor_(executor), stats_(stats), on_refused_(std::move(on_refused)), orphan_hold_(orphan_hold), ranks_(ranks) {
  if (orphan_hold_.duration > absl::ZeroDuration()) executor_->KeepLabels();
  const MutexLock lock(&join_mutex_);
  thread_ = std::thread([this, binds_threads] {
    if (binds_threads) BindThreads();
    Run();
  });
}

SessionLoop::~SessionLoop() {
  Stop();
}

absl::Status SessionLoop::Open(std::shared_ptr<StepSession> session, uint64_t epoch, bool adopts, uint64_t term,
                               const AcceptedResults& accepts, const v1::SessionGroup& group) {
  const MutexLock lock(&mutex_);
  if (phase_ == Phase::kStopping) return absl::UnavailableError("the worker is stopping");
  if (phase_ == Phase::kDraining) return absl::UnavailableError("the worker is draining");
  if (term < last_term_) {
    stats_->RecordStaleTerm();
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat("term is ", term, ", it must be at least the greatest one seen, ",
                                                   last_term_, ": this worker belongs to a newer leader",
                                                   term == 0 ? ", and this manager has no term" : "")),
        kStaleTerm);
  }
  const uint64_t now_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  if (epoch > now_ms + kMaxEpochLeadMs) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch is ", epoch, ", it must be at most ", now_ms + kMaxEpochLeadMs,
                     ", a day ahead of the worker's clock; epochs are milliseconds since 1970, so perhaps the clock of "
                     "the manager or of the worker is wrong"));
  }
  if (epoch <= last_epoch_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch is ", epoch, ", it must be greater than the last one seen, ", last_epoch_,
        current_ == nullptr ? "" : "; a session of that epoch has this worker, perhaps another manager's"));
  }
  if (ranks_ != nullptr) {
    QUIRE_RETURN_IF_ERROR(ranks_->Check(group));
  } else if (group.transport_addresses_size() > 0) {
    return absl::InvalidArgumentError("OpenSession.group is set, but this worker is no rank of a group");
  }
  last_epoch_ = epoch;
  last_term_ = term;
  // A session that was never served has nothing to finish. The loop thread ends the one that is served after its step.
  if (current_ != nullptr && current_ != served_) current_->End(TakenOver(epoch));
  SetCurrent(std::move(session));
  adopts_ = adopts;
  accepts_ = accepts;
  group_ = group;
  SetRefusal("");
  wake_.NotifyOne();
  return absl::OkStatus();
}

void SessionLoop::Refuse(const std::string& reason) {
  const MutexLock lock(&mutex_);
  if (current_ == nullptr) SetRefusal(reason.empty() ? "no reason was given" : reason.substr(0, kMaxRefusalBytes));
}

void SessionLoop::SetRefusal(const std::string& reason) {
  if (reason == refusal_) return;
  const bool was_refused = !refusal_.empty();
  refusal_ = reason;
  if (!reason.empty()) {
    QUIRE_LOG(kWarning) << "the manager refuses this worker, which is not ready until a session is opened: " << reason;
  }
  if (was_refused == !reason.empty()) return;
  stats_->SetRefused(!was_refused);
  if (on_refused_) on_refused_(!was_refused);
}

absl::Status SessionLoop::Submit(const StepSession* session, v1::StepPlan plan) {
  const MutexLock lock(&mutex_);
  if (current_.get() != session) return absl::OkStatus();
  if (in_flight_ >= kMaxPlansInFlight) {
    return absl::FailedPreconditionError(
        absl::StrCat(in_flight_ + 1, " plans are unanswered, the limit is ", kMaxPlansInFlight));
  }
  ++in_flight_;
  plans_.push_back(std::move(plan));
  wake_.NotifyOne();
  return absl::OkStatus();
}

void SessionLoop::CloseAfterPlans(StepSession* session) {
  const MutexLock lock(&mutex_);
  if (current_.get() == session) {
    is_closing_ = true;
    wake_.NotifyOne();
  } else if (served_.get() != session) {
    session->End(absl::InvalidArgumentError("the stream ended before `open`"));
  }
}

void SessionLoop::Leave(const StepSession* session) {
  const MutexLock lock(&mutex_);
  if (current_.get() != session) return;
  SetCurrent(nullptr);
  wake_.NotifyOne();
}

uint64_t SessionLoop::last_epoch() const {
  const MutexLock lock(&mutex_);
  return last_epoch_;
}

bool SessionLoop::has_session() const {
  const MutexLock lock(&mutex_);
  return current_ != nullptr;
}

bool SessionLoop::is_draining() const {
  const MutexLock lock(&mutex_);
  return phase_ != Phase::kServing;
}

bool SessionLoop::Drain(absl::Duration timeout) {
  const MutexLock lock(&mutex_);
  if (phase_ == Phase::kServing) {
    phase_ = Phase::kDraining;
    // A session that is not greeted yet is told after its greeting.
    if (served_ != nullptr && served_ == current_) served_->SendDraining();
  }
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(timeout);
  while (served_ != nullptr || current_ != nullptr) {
    if (!session_over_.WaitUntil(&mutex_, deadline)) return served_ == nullptr && current_ == nullptr;
  }
  return true;
}

void SessionLoop::Stop() {
  {
    const MutexLock lock(&mutex_);
    phase_ = Phase::kStopping;
  }
  if (ranks_ != nullptr) ranks_->EndSoon();
  wake_.NotifyOne();
  const MutexLock lock(&join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void SessionLoop::SetCurrent(std::shared_ptr<StepSession> session) {
  if (ranks_ != nullptr) ranks_->EndSoon();
  current_ = std::move(session);
  plans_.clear();
  in_flight_ = 0;
  is_closing_ = false;
}

void SessionLoop::BindThreads() {
  cpu_set_t allowed;
  cpu_set_t own;
  const bool is_known = pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) == 0;
  executor_->BindThreads();
  if (!is_known || pthread_getaffinity_np(pthread_self(), sizeof own, &own) != 0) return;
  cpu_set_t others;
  CPU_XOR(&others, &allowed, &own);
  if (CPU_COUNT(&others) == 0) return;
  // This can fail only when cores are being taken away. The sender then keeps its old affinity.
  sender_.Schedule([others] { pthread_setaffinity_np(pthread_self(), sizeof others, &others); });
}

void SessionLoop::Run() {
  if (ranks_ != nullptr) ranks_->PrepareNext();
  const MutexLock lock(&mutex_);
  int num_polls = 0;  // Polls since the last plan was finished.
  while (true) {
    const bool may_begin = phase_ != Phase::kStopping && served_ == current_ && !plans_.empty();
    if (may_begin && executor_->CanBegin(plans_.front())) {
      BeginPlan();
    } else if (!begun_.empty()) {
      // While the device is busy, another plan may arrive that can begin before this one is done.
      if (may_begin || executor_->num_begun() > 1 || executor_->IsDone()) {
        FinishPlan();
        num_polls = 0;
      } else if (++num_polls <= kBusyPolls) {
        PollDevice();
      } else {
        wake_.WaitFor(&mutex_, kPollInterval);
      }
    } else if (phase_ == Phase::kStopping) {
      break;
    } else if (served_ != current_) {
      SwitchSession();
    } else if (is_closing_) {
      current_->End(absl::OkStatus());
      SetCurrent(nullptr);
    } else {
      WaitForWork();
    }
  }
  for (const std::shared_ptr<StepSession>& session : {served_, current_}) {
    if (session != nullptr) session->End(absl::UnavailableError("the worker is stopping"));
  }
  executor_->SetGroup(nullptr).IgnoreError();
  current_ = nullptr;
  served_ = nullptr;
}

void SessionLoop::PollDevice() {
  using Clock = std::chrono::steady_clock;
  mutex_.Unlock();
  const Clock::time_point end = Clock::now() + kPollInterval;
  while (!executor_->IsDone() && Clock::now() < end) std::this_thread::yield();
  mutex_.Lock();
}

void SessionLoop::WaitForWork() {
  if (!hold_end_.has_value()) {
    wake_.Wait(&mutex_);
  } else if (!wake_.WaitUntil(&mutex_, *hold_end_) && current_ == nullptr) {
    QUIRE_LOG(kInfo) << "no session has adopted the rows within " << absl::FormatDuration(orphan_hold_.duration)
                     << ", they are dropped";
    Drop();
  }
}

void SessionLoop::SwitchSession() {
  LogEndOfServed();
  if (ranks_ != nullptr) LeaveGroup();
  served_ = current_;
  served_epoch_ = last_epoch_;
  served_accepts_ = accepts_;
  // The guides of ranks are compiled at different times, and all must draw the same rows.
  executor_->SetMayPostpone(served_accepts_.postponed && ranks_ == nullptr);
  stats_->SetSession(last_epoch_, served_ != nullptr);
  if (served_ == nullptr) {
    Hold();
    session_over_.NotifyAll();
    return;
  }
  if (ranks_ != nullptr && !JoinGroup()) return;
  const uint64_t epoch = served_epoch_;
  std::vector<v1::InventoryChunk> inventory;
  std::string adopted;
  if (adopts_ && CanHold()) {
    mutex_.Unlock();
    inventory = MakeInventory(*executor_, last_steps_, orphan_hold_.layout_id, orphan_hold_.limits,
                              held_since_us_.value_or(SteadyClock().NowMicros()));
    const v1::InventoryHeader& header = inventory[0].header();
    adopted = absl::StrCat("; it adopts ", header.num_rows(), " rows and ", header.num_labels(), " labelled blocks");
    if (ranks_ != nullptr) SetDigest(ranks_->place().rank, &inventory);
    executor_->StartOver();
    mutex_.Lock();
    hold_end_.reset();
    held_since_us_.reset();
  } else {
    Drop();
  }
  QUIRE_LOG(kInfo) << "session of epoch " << Named("epoch", epoch) << " opened" << adopted;
  served_->SendOpened(epoch, std::move(inventory));
  if (phase_ == Phase::kDraining) served_->SendDraining();
}

void SessionLoop::LogEndOfServed() {
  if (served_ == nullptr) return;
  // If no newer session took over, the session has left, so its stream has ended already.
  const bool is_replaced = last_epoch_ != served_epoch_;
  if (is_replaced) served_->End(TakenOver(last_epoch_));
  QUIRE_LOG(kInfo) << "session of epoch " << Named("epoch", served_epoch_) << " ended: "
                   << (is_replaced ? absl::StrCat("epoch ", last_epoch_, " took over") : "its stream ended");
}

void SessionLoop::LeaveGroup() {
  mutex_.Unlock();
  ranks_->TellEnd(has_failed_);
  executor_->SetGroup(nullptr).IgnoreError();  // Leaving is no error.
  ranks_->Leave();
  mutex_.Lock();
}

bool SessionLoop::JoinGroup() {
  ranks_->Take(group_);
  mutex_.Unlock();
  ranks_->PrepareNext();  // Another manager may open a session while this one waits.
  absl::Status status = ranks_->Join();
  if (status.ok()) status = executor_->SetGroup(ranks_->collective());
  mutex_.Lock();
  if (status.ok()) return true;
  QUIRE_LOG(kWarning) << "session of epoch " << Named("epoch", served_epoch_) << " cannot begin: " << status.message();
  served_->End(status);
  if (served_ == current_) SetCurrent(nullptr);
  return false;
}

bool SessionLoop::CanHold() const {
  return orphan_hold_.duration > absl::ZeroDuration() && !has_failed_ && HasInventory(*executor_);
}

void SessionLoop::Hold() {
  if (phase_ != Phase::kServing || !CanHold()) {
    Drop();
    return;
  }
  hold_end_ = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(orphan_hold_.duration);
  held_since_us_ = SteadyClock().NowMicros();
  QUIRE_LOG(kInfo) << "the rows and blocks of the session are kept for " << absl::FormatDuration(orphan_hold_.duration)
                   << ", or until another session opens";
}

void SessionLoop::Drop() {
  executor_->Reset();
  last_steps_ = LastSteps();
  has_failed_ = false;
  hold_end_.reset();
  held_since_us_.reset();
}

void SessionLoop::BeginPlan() {
  begun_.push_back(std::move(plans_.front()));
  plans_.pop_front();
  const uint64_t epoch = served_epoch_;
  mutex_.Unlock();
  absl::Status status = ranks_ == nullptr ? absl::OkStatus() : ranks_->Agree(epoch, begun_.back());
  const bool may_begin = status.ok();
  if (may_begin) status = executor_->Begin(begun_.back());
  if (status.ok() && executor_->labels() != nullptr) last_steps_.Begin(begun_.back(), executor_->rows());
  mutex_.Lock();
  if (status.ok()) return;
  has_failed_ |= may_begin;
  const v1::StepPlan plan = std::move(begun_.back());
  begun_.pop_back();
  while (!begun_.empty()) FinishPlan();
  Fail(plan, status);
}

void SessionLoop::FinishPlan() {
  const v1::StepPlan plan = std::move(begun_.front());
  begun_.pop_front();
  const uint64_t epoch = served_epoch_;
  mutex_.Unlock();
  v1::StepResult result;
  executor_->Finish(&result);
  const absl::Status group = executor_->GroupStatus();
  const absl::Status status = group.ok() ? ErrorOf(result) : group;
  if (ranks_ != nullptr) {
    SetDigest(&result);
    stats_->RecordExchanges(CountExchanges(ranks_->TakeStepTimes()), CountExchanges(ranks_->TakePlanTimes()));
  }
  if (status.ok()) {
    stats_->RecordStep(CountStep(plan, result));
    if (executor_->labels() != nullptr) last_steps_.Finish(epoch, result);
  }
  mutex_.Lock();
  if (!status.ok()) {
    has_failed_ = true;
    begun_.clear();  // Later plans depend on the one that failed.
    Fail(plan, status);
  } else if (served_ == current_) {
    --in_flight_;
    if (ranks_ != nullptr && ranks_->place().rank > 0) KeepDigestAlone(&result);
    current_->SendResult(std::move(result));
  }
}

absl::Status SessionLoop::ErrorOf(const v1::StepResult& result) const {
  if (served_accepts_.failures || result.failures().empty()) return absl::OkStatus();
  const v1::SequenceFailure& failure = result.failures(0);
  constexpr absl::string_view kPrefix = "SEQUENCE_FAILURE_REASON_";
  const std::string sequence = absl::StrCat(failure.sequence());
  return WithReason(absl::InternalError(absl::StrCat("sequence ", sequence, " has failed: ", failure.message())),
                    absl::StripPrefix(v1::SequenceFailureReason_Name(failure.reason()), kPrefix),
                    {{kFailedSequence, sequence}});
}

void SessionLoop::Fail(const v1::StepPlan& plan, const absl::Status& status) {
  if (served_ != current_) return;
  QUIRE_LOG(kWarning) << "step " << Named("step", plan.step()) << " of epoch " << Named("epoch", served_epoch_)
                      << " failed: " << status;
  stats_->RecordFailure();
  current_->End(status);
  SetCurrent(nullptr);
}

}  // namespace quire
