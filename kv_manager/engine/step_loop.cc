// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/step_loop.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/status_reason.h"
#include "kv_manager/engine/request_failure.h"
#include "kv_manager/engine/work_time.h"

namespace quire {

StepLoop::StepLoop(const StepLoopOptions& options, std::unique_ptr<WorkerClient> client, StepLoopHooks hooks,
                   const Clock* clock)
    : options_(options),
      hooks_(std::move(hooks)),
      clock_(clock),
      inbox_(&options_, clock),
      report_(options.address),
      live_(report_.stats(), report_.wait()),
      session_(&options_, &hooks_, std::move(client), &inbox_, &live_, &report_, clock->NowMicros()) {
  Publish();
}

StepLoop::~StepLoop() {
  Stop();
}

void StepLoop::Start() {
  thread_ = std::thread([this] { ThreadMain(); });
}

void StepLoop::ThreadMain() {
  while (inbox_.Wait(RunOnce())) {
  }
}

void StepLoop::Stop() {
  inbox_.Stop();
  if (thread_.joinable()) thread_.join();
  // The thread is gone, so everything that it owned belongs to the caller of Stop().
  inbox_.Take(&events_, &questions_);
  now_us_ = clock_->NowMicros();
  for (LoopEvent& event : events_) {
    if (auto* submitted = std::get_if<RequestSubmitted>(&event)) {
      submitted->sink->OnFailed(IsRestorable(submitted->request, options_) ? NextManagerError() : ShuttingDownError());
    }
    if (auto* moved = std::get_if<RequestMoved>(&event)) live_.Adopt(moved->request.id(), std::move(moved->live));
  }
  events_.clear();
  session_.Stop(now_us_);
  AnswerQuestions(nullptr, nullptr);
  session_.tables()->OnLost(ShuttingDownError());
  Publish();
}

int64_t StepLoop::RunOnce() {
  inbox_.Take(&events_, &questions_);
  now_us_ = clock_->NowMicros();
  if (session_.pool() != nullptr && options_.quotas != nullptr) session_.pool()->UpdateTenants(*options_.quotas);
  for (LoopEvent& event : events_) {
    std::visit([this](auto& e) { Handle(std::move(e)); }, event);
  }
  events_.clear();
  LogTakenOver();
  session_.MoveRequests(now_us_);
  session_.Poll(now_us_);
  ExpireDeadlines();
  WorkerPool* const pool = session_.pool();
  if (pool != nullptr) pool->blocks()->ExpirePins(now_us_);
  PlanSteps();
  if (pool != nullptr) {
    report_.wait()->NoteQueues(now_us_, pool->scheduler()->Backlogs(), options_.wait_limits);
    report_.wait()->NoteEnds(*pool->scheduler());
  }
  session_.OnPlanned(now_us_);
  if (pool != nullptr) {
    live_.StopWantingIf([scheduler = pool->scheduler()](RequestId request) {
      const SequenceGroup* const group = scheduler->FindGroup(request);
      return group != nullptr && group->is_running();
    });
  }
  session_.EndIfDrained(now_us_);
  AnswerQuestions(pool == nullptr ? nullptr : pool->scheduler(), pool == nullptr ? nullptr : pool->blocks());
  session_.tables()->OnRound(now_us_, pool == nullptr ? 0 : pool->scheduler()->counts().running);
  Publish();
  session_.LogJoined();
  return NextWake();
}

void StepLoop::Handle(RequestSubmitted event) {
  const RequestId id = event.request.id;
  const std::string tenant = event.request.tenant;
  const absl::Status status = Queue(&event);
  if (status.ok()) return;
  CountRefusal(tenant);
  if (!absl::IsAlreadyExists(status)) live_.AddRefused(id);
  event.ticket.reset();  // First: the client may react to the refusal at once.
  event.sink->OnFailed(status);
}

absl::Status StepLoop::Queue(RequestSubmitted* event) {
  StepLoopStats* const stats = report_.stats();
  const Request& request = event->request;
  const bool is_gone = !session_.is_ready() && !session_.MayReturn(now_us_);
  if (is_gone || request.generation != session_.generation()) {
    if (PassOn(event)) return absl::OkStatus();
    ++stats->refused_worker_lost;
    return is_gone ? absl::UnavailableError("the worker that was chosen for the request is not connected")
                   : ModelReplacedError();
  }
  const RequestId id = request.id;
  Scheduler* const scheduler = session_.pool()->scheduler();
  WaitForecast forecast = report_.wait()->Forecast(QueueNameOf(scheduler->options().policy, request.tenant));
  forecast.num_requests = live_.size();
  absl::Status status = CheckWait(options_.wait_limits, forecast, scheduler->NumTokensAhead(request), request, now_us_);
  if (!status.ok()) {
    ++stats->refused_overloaded;
    return status;
  }
  LiveRequests::Entry entry = LiveRequests::EntryOf(request, event->sink, std::move(event->ticket), options_);
  std::optional<Displaced> displaced;
  status = scheduler->Submit(std::move(event->request), &displaced);
  if (displaced.has_value()) OnDisplaced(*displaced);
  if (!status.ok()) {
    ++(absl::IsResourceExhausted(status) ? stats->refused_queue_full : stats->refused_never_fits);
    return status;
  }
  entry.sink->OnPlaced(options_.address);
  live_.Add(id, std::move(entry));
  return absl::OkStatus();
}

// One line for all requests of a round.
void StepLoop::LogTakenOver() {
  const TakenOver taken = std::exchange(taken_over_, {});
  if (taken.num_requests == 0) return;
  const std::string requests = Counted(taken.num_requests, "request");
  if (taken.num_changed == 0) {
    QUIRE_LOG(kInfo) << "worker " << Named("worker", options_.address) << " continues " << requests
                     << " of other workers";
  } else {
    QUIRE_LOG(kWarning) << "worker " << Named("worker", options_.address) << " continues " << requests
                        << " of other workers, and " << taken.num_changed << " of them change their numerics";
  }
}

void StepLoop::Handle(RequestMoved event) {
  const RequestId id = event.request.id();
  absl::Status status;
  taken_over_.num_requests += !event.is_rebalanced;
  if (event.family != FamilyId{0} && event.family == session_.family()) {
    const bool is_change = ChangeGeneration(session_.generation(), &event.request, event.live.sink.get());
    report_.stats()->numerics_changes += is_change;
    taken_over_.num_changed += is_change;
  }
  if (event.request.request().generation != session_.generation()) {
    // The worker was lost meanwhile and has come back in another generation.
    if (PassOn(&event)) return;
    status = ModelReplacedError();
  } else {
    status = session_.pool()->scheduler()->Adopt(std::move(event.request));
    if (!status.ok()) {
      // The worker was lost meanwhile and has come back with a smaller pool. The next one may refuse the request for
      // the same reason, so it moves on only once.
      if (!std::exchange(event.was_refused, true) && PassOn(&event)) return;
      status = absl::Status(status.code(), absl::StrCat("the worker of the request was lost, and another worker "
                                                        "cannot continue it: ",
                                                        status.message()));
    }
  }
  event.live.moved_us = now_us_;
  event.live.sink->OnPlaced(options_.address);
  live_.Adopt(id, std::move(event.live));
  if (!status.ok()) live_.Fail(id, status);
}

bool StepLoop::PassOn(RequestMoved* event) {
  if (hooks_.move_request == nullptr) return false;
  const RequestId id = event->request.id();
  const MoveWish wish{.group = event->request.group(), .accepts_delay = true, .family = event->family};
  const bool is_moved = hooks_.move_request(wish, [&] {
    return MovingRequest{std::move(event->request), std::move(event->live), inbox_.Release(id), event->family,
                         event->was_refused};
  });
  report_.stats()->moved_requests += is_moved;
  return is_moved;
}

bool StepLoop::PassOn(RequestSubmitted* event) {
  if (hooks_.move_request == nullptr) return false;
  const RequestId id = event->request.id;
  const SequenceGroup group(event->request, ServiceRank(), SequenceId{0});
  const bool is_moved = hooks_.move_request({.group = group, .accepts_delay = true}, [&] {
    live_.Add(id, LiveRequests::EntryOf(event->request, event->sink, std::move(event->ticket), options_));
    return MovingRequest{MovedRequest(std::move(event->request)), live_.Take(id), inbox_.Release(id)};
  });
  report_.stats()->moved_requests += is_moved;
  return is_moved;
}

void StepLoop::OnDisplaced(const Displaced& displaced) {
  constexpr int64_t kRetryMs = 200;
  const auto& [request, tenant] = displaced;
  const int limit = options_.scheduler.max_waiting_requests;
  const std::string message = absl::StrCat("the queue has reached its limit of ", limit,
                                           " requests, and the request gave its place to a tenant "
                                           "that has fewer waiting requests by weight than its tenant \"",
                                           tenant, "\" (--max-waiting-requests)");
  live_.Displace(
      request, WithRetryDelay(
                   WithReason(absl::ResourceExhaustedError(message), "QUEUE_FULL",
                              {{"tenant", tenant}, {"field", "max_waiting_requests"}, {"limit", absl::StrCat(limit)}}),
                   kRetryMs));
  CountRefusal(tenant);
}

void StepLoop::CountRefusal(const std::string& tenant) {
  std::vector<TenantUsage>& tenants = report_.stats()->tenants;
  const size_t slot = options_.tenants == nullptr ? 0 : options_.tenants->FindSlot(tenant);
  if (tenants.size() <= slot) tenants.resize(slot + 1);
  ++tenants[slot].refusals;
}

void StepLoop::Handle(RequestCancelled event) {
  if (!live_.Drop(event.request, event.reason, now_us_)) return;
  session_.pool()->scheduler()->Cancel(event.request, event.reason == FinishReason::kStopToken);
}

void StepLoop::Handle(SampleCancelled event) {
  if (session_.pool() == nullptr) return;
  session_.pool()->scheduler()->CancelSample(event.request, event.sample_index);
}

void StepLoop::Handle(PlanAnswered event) {
  const WorkTime start = WorkTime::Now(*clock_);
  const int64_t step_start_us = session_.link().progress_us();
  const auto plan = session_.OnAnswered(event, now_us_);
  if (!plan.has_value()) return;
  if (plan->num_tokens > 0) {  // Otherwise it may have waited for a guide.
    report_.wait()->OnStep(now_us_ - step_start_us, session_.pool()->scheduler()->counts().running,
                           static_cast<int>(event.result.slices.size()), plan->num_tokens);
  }
  report_.CountResult(now_us_ - plan->sent_us, event.duration_us);
  StepOutput output = session_.pool()->scheduler()->Commit(std::move(event.result));
  const std::vector<FailedRequest> failed = std::exchange(output.failed, {});
  live_.Deliver(std::move(output), plan->sent_us, now_us_, [this](const RequestPins& pins) {
    std::vector<int> num_tokens = session_.pool()->MakePins(pins, now_us_);
    for (const int num : num_tokens) ++(num > 0 ? report_.stats()->request_pins : report_.stats()->failed_request_pins);
    return num_tokens;
  });
  FailRequests(failed);
  const WorkTime planning{.elapsed_us = plan->planning_us, .cpu_us = plan->planning_cpu_us};
  report_.CountManagerPart(planning + (WorkTime::Now(*clock_) - start));
}

void StepLoop::FailRequests(const std::vector<FailedRequest>& failed) {
  for (const FailedRequest& request : failed) {
    const absl::Status error = ErrorOf(request);
    live_.Fail(request.request, error);
    const std::optional<int64_t> num_dropped = failure_log_.Admit(now_us_);
    if (!num_dropped.has_value()) continue;
    QUIRE_LOG(kWarning) << "request " << Value(request.request) << " failed on worker "
                        << Named("worker", options_.address) << ": " << error.message()
                        << (*num_dropped > 0 ? absl::StrCat(" (", *num_dropped, " more failed)") : "");
  }
}

// Deadlines count while the worker is busy or lost, too.
void StepLoop::ExpireDeadlines() {
  const std::string cause = session_.CauseOfAbsence(now_us_);
  for (const RequestId request : live_.Expire(now_us_, cause)) session_.pool()->scheduler()->Cancel(request);
  if (!session_.is_ready() || !report_.wait()->is_busy()) return;
  // A request that waits and cannot get a token in time must not take the place of one that can.
  Scheduler* const scheduler = session_.pool()->scheduler();
  const auto is_waiting = [&](RequestId request) {
    const SequenceGroup* const group = scheduler->FindGroup(request);
    // The group is gone when all samples of the request have ended and the stream has not ended the request yet.
    return group != nullptr && !group->is_running() && !group->progress().has_started;
  };
  for (const RequestId request : live_.GiveUp(now_us_, report_.wait()->step_us(), is_waiting)) {
    scheduler->Cancel(request);
  }
}

void StepLoop::PlanSteps() {
  while (session_.is_ready() && !session_.is_fenced() &&
         session_.link().num_plans_in_flight() < options_.scheduler.max_plans_in_flight) {
    WorkerPool* const pool = session_.pool();
    const WorkTime start = WorkTime::Now(*clock_);
    StepPlan plan = pool->scheduler()->Plan();
    if (plan.empty() && (EndPinForRequests() || pool->scheduler()->RestartStuck())) continue;
    report_.wait()->OnPlanned(start.elapsed_us, pool->scheduler()->counts());
    if (plan.empty()) return;
    session_.tables()->OnPlanned(*pool->scheduler(), *pool->blocks(), &plan);
    const int64_t planned_us = clock_->NowMicros();
    report_.CountPlan(plan, planned_us - start.elapsed_us);
    session_.Send(plan, planned_us);
    const WorkTime planning = WorkTime::Now(*clock_) - start;
    session_.SetPlanningTime(planning.elapsed_us, planning.cpu_us);
  }
}

// When no request of the loop can ever continue, only pins can hold the blocks that they lack.
bool StepLoop::EndPinForRequests() {
  return session_.link().num_plans_in_flight() == 0 && live_.size() > 0 && session_.pool()->blocks()->EndOnePin();
}

void StepLoop::AnswerQuestions(Scheduler* scheduler, PagedBlockManager* blocks) {
  const LoopView view{options_.address,  session_.link(),       scheduler, blocks,
                      session_.tables(), session_.generation(), now_us_};
  for (const LoopQuestion& question : questions_) question(view);
  questions_.clear();
}

void StepLoop::Publish() {
  report_.Update(session_);
  const bool is_change_due = inbox_.Publish(report_.Load(session_, live_, now_us_), session_.is_drained_by_worker(),
                                            report_.status(), live_.TakeEnded());
  if (is_change_due) hooks_.on_change();
  session_.OnPublished();
}

int64_t StepLoop::NextWake() const {
  int64_t wake_us =
      std::min({session_.next_wake_us(now_us_), live_.next_deadline_us(), session_.tables().next_deadline_us()});
  if (session_.pool() != nullptr) wake_us = std::min(wake_us, session_.pool()->blocks().next_pin_expiry_us());
  return wake_us;
}

}  // namespace quire
