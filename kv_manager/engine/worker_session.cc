#include "kv_manager/engine/worker_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/log.h"
#include "kv_manager/engine/loop_report.h"

namespace quire {
namespace {

constexpr int kMaxFruitlessSessions = 3;
// A worker that takes longer than this to come up is worth a warning.
constexpr int64_t kQuietStartUs = 10'000'000;

// A link needs a client that has its listener.
std::unique_ptr<WorkerClient> WithListener(std::unique_ptr<WorkerClient> client, WorkerClient::Listener* listener) {
  client->SetListener(listener);
  return client;
}

}  // namespace

WorkerSession::WorkerSession(const StepLoopOptions* options, const StepLoopHooks* hooks,
                             std::unique_ptr<WorkerClient> client, LoopInbox* inbox, LiveRequests* live,
                             LoopReport* report, int64_t now_us)
    : options_(options),
      hooks_(hooks),
      inbox_(inbox),
      live_(live),
      report_(report),
      lost_since_us_(now_us),
      link_(options->link, WithListener(std::move(client), inbox)) {}

void WorkerSession::OnDescribed(WorkerDescribed event, int64_t now_us) {
  if (!link_.is_current(event.epoch)) return;
  if (absl::Status status = hooks_->admit_worker(event.description); !status.ok()) {
    return Lose(std::move(status), now_us);
  }
  AdoptPool(event.description);
  link_.OnDescribed(event.description);
}

// Requests of a worker that comes back with another pool fail: the scheduler has promised them blocks of the old one.
void WorkerSession::AdoptPool(const WorkerDescription& worker) {
  const bool is_same_pool = description_.has_value() && description_->HasPoolOf(worker);
  description_ = worker;
  description_->tokenizer_files.clear();
  if (is_same_pool) return;

  FailAll(absl::UnavailableError(absl::StrCat("worker ", options_->address, " came back with another pool")));
  if (pool_ != nullptr) report_->EndPool(*pool_);
  pool_ = std::make_unique<WorkerPool>(worker, *options_, *hooks_);
  inbox_->SetPrefixIndex(pool_->index());
}

void WorkerSession::OnOpened(const SessionOpened& event, int64_t now_us) {
  if (!link_.is_current(event.epoch)) return;
  link_.OnOpened();
  last_step_us_ = now_us;
  tokens_at_open_ = report_->stats()->generated_tokens;
  has_logged_waiting_ = false;
  logged_reason_ = absl::OkStatus();
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_->address) << " joined: epoch "
                   << Named("epoch", event.epoch) << ", model " << description_->model_name << ", "
                   << description_->num_blocks << " blocks of " << description_->block_size << " tokens, "
                   << description_->max_sequences << " rows, " << description_->device << "; "
                   << Counted(live_->size(), "request") << " waited for it";
}

void WorkerSession::OnDraining(const WorkerDraining& event) {
  if (!link_.is_current(event.epoch)) return;
  if (drain_ == Drain::kNone) drain_ = Drain::kAnnounced;
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_->address) << " drains; it still has " << live_->size()
                   << " requests to finish";
}

void WorkerSession::OnLost(WorkerLost event, int64_t now_us) {
  if (link_.is_current(event.epoch)) Lose(std::move(event.reason), now_us);
}

std::optional<WorkerLink::SentPlan> WorkerSession::OnAnswered(const PlanAnswered& event, int64_t now_us) {
  if (!link_.is_current(event.epoch)) return std::nullopt;
  absl::Status status = pool_->scheduler()->CheckResult(event.result);
  if (status.ok()) status = tables_.OnResult(event.result, pool_->scheduler());
  if (!status.ok()) {
    Lose(std::move(status), now_us);
    return std::nullopt;
  }
  const WorkerLink::SentPlan plan = link_.OnResult(now_us);
  last_step_us_ = now_us;
  pool_->OnStep(plan.num_tokens, event.duration_us);
  return plan;
}

void WorkerSession::Poll(int64_t now_us) {
  if (absl::Status status = link_.Poll(now_us); !status.ok()) Lose(std::move(status), now_us);
  if (link_.is_ready() || live_->size() == 0 || now_us < lost_since_us_ + options_->worker_grace_us) return;
  FailAll(absl::UnavailableError(absl::StrCat("worker ", options_->address, " did not come back within ",
                                              options_->worker_grace_us / 1'000'000,
                                              " s: ", link_.last_error().message())));
}

// A request that was placed here before load() told of the drain is in the inbox by the time the next round takes it:
// whoever places a request does so under the lock that on_change waits for. Therefore the session ends no earlier than
// in the round after the one that published the drain.
void WorkerSession::EndIfDrained(int64_t now_us) {
  if (drain_ != Drain::kPublished || live_->size() > 0 || link_.num_plans_in_flight() > 0) return;
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_->address) << " has drained; its session ends";
  lost_since_us_ = now_us;
  if (HasGivenTokens()) num_fruitless_sessions_ = 0;
  pool_->scheduler()->AbandonAll();
  EndAttemptOrSession(absl::UnavailableError("the worker has drained"), now_us);
}

int64_t WorkerSession::next_wake_us(int64_t now_us) const {
  if (is_drained_by_worker() && live_->size() == 0 && link_.num_plans_in_flight() == 0) return now_us;
  if (link_.is_ready() || live_->size() == 0) return link_.next_poll_us();
  return std::min(link_.next_poll_us(), lost_since_us_ + options_->worker_grace_us);
}

void WorkerSession::Stop(int64_t now_us) {
  if (link_.is_ready()) {
    pool_->scheduler()->AbandonAll();
    EndAttemptOrSession(ShuttingDownError(), now_us);
  }
  FailAll(ShuttingDownError());
}

bool WorkerSession::MayReturn(int64_t now_us) const {
  return pool_ != nullptr && !link_.is_ready() && now_us < lost_since_us_ + options_->worker_grace_us;
}

void WorkerSession::Lose(absl::Status reason, int64_t now_us) {
  if (link_.is_ready()) {
    QUIRE_LOG(kWarning) << "worker " << Named("worker", options_->address) << " lost in epoch "
                        << Named("epoch", link_.epoch()) << " after " << Named("step", link_.num_steps())
                        << " steps: " << reason.message() << "; " << live_->size() << " requests wait for it";
    ++report_->stats()->worker_losses;
    report_->stats()->interruptions += pool_->scheduler()->counts().running;
    lost_since_us_ = now_us;
    pool_->scheduler()->AbandonAll();
    tables_.OnLost(reason);
    CountFruitlessSession();
  } else {
    LogFailedAttempt(reason, now_us);
  }
  EndAttemptOrSession(std::move(reason), now_us);
}

void WorkerSession::EndAttemptOrSession(absl::Status reason, int64_t now_us) {
  drain_ = Drain::kNone;
  report_->wait()->OnLost();
  link_.Lose(std::move(reason), now_us);
}

// Logs every reason once. At first, a worker that nobody has started yet is no more than a line of information.
void WorkerSession::LogFailedAttempt(const absl::Status& reason, int64_t now_us) {
  if (absl::IsUnavailable(reason) && now_us < lost_since_us_ + kQuietStartUs) {
    if (!std::exchange(has_logged_waiting_, true)) {
      QUIRE_LOG(kInfo) << "waiting for worker " << Named("worker", options_->address);
    }
  } else if (reason != logged_reason_) {
    QUIRE_LOG(kWarning) << "worker " << Named("worker", options_->address) << " cannot be used: " << reason.message();
    logged_reason_ = reason;
  }
}

bool WorkerSession::HasGivenTokens() const {
  return report_->stats()->generated_tokens > tokens_at_open_;
}

// A request can be what kills its worker. It must not do so for ever.
void WorkerSession::CountFruitlessSession() {
  const bool had_work = link_.num_plans_in_flight() > 0;
  if (HasGivenTokens()) num_fruitless_sessions_ = 0;
  if (HasGivenTokens() || !had_work || ++num_fruitless_sessions_ < kMaxFruitlessSessions) return;
  num_fruitless_sessions_ = 0;
  FailAll(absl::UnavailableError(absl::StrCat("worker ", options_->address, " was lost ", kMaxFruitlessSessions,
                                              " times in a row before it gave a token; perhaps one of its requests "
                                              "is the cause")));
}

void WorkerSession::FailAll(const absl::Status& status) {
  const auto failed = live_->FailAll(status);
  for (const RequestId request : failed) pool_->scheduler()->Cancel(request);
  if (!failed.empty()) {
    QUIRE_LOG(kWarning) << failed.size() << " requests failed: " << status.message();
  }
}

}  // namespace quire
