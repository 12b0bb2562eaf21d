#include "kv_manager/engine/step_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_reason.h"

namespace quire {
namespace {

constexpr int kMaxFruitlessSessions = 3;
// A worker that takes longer to come up is worth a warning.
constexpr int64_t kQuietStartUs = 10'000'000;

absl::Status ShuttingDown() {
  return WithRetryDelay(WithReason(absl::UnavailableError("the manager is shutting down"), "DRAINING"),
                        /*delay_ms=*/1000);
}

}  // namespace

StepLoop::StepLoop(const StepLoopOptions& options, std::unique_ptr<WorkerClient> client, Hooks hooks,
                   const Clock* clock)
    : options_(options),
      hooks_(std::move(hooks)),
      clock_(clock),
      lost_since_us_(clock->NowMicros()),
      link_(options.link, (client->SetListener(this), std::move(client))) {
  current_.address = options_.address;
  current_.last_error = std::string(link_.last_error().message());
  status_ = std::make_shared<WorkerStatus>(current_);
}

StepLoop::~StepLoop() {
  Stop();
}

void StepLoop::Start() {
  thread_ = std::thread([this] { ThreadMain(); });
}

void StepLoop::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  // The thread is gone: what it owned is ours.
  TakeInbox();
  now_us_ = clock_->NowMicros();
  for (Event& event : events_) {
    if (auto* submitted = std::get_if<Submitted>(&event)) submitted->sink->OnFailed(ShuttingDown());
  }
  events_.clear();
  if (link_.is_ready()) {
    scheduler_->AbandonAll();
    link_.Lose(ShuttingDown(), now_us_);
  }
  FailAll(ShuttingDown());
  AnswerQuestions(nullptr, nullptr);
  table_auditor_.OnLost(ShuttingDown());
  Publish();
}

void StepLoop::ThreadMain() {
  while (true) {
    const int64_t wake_us = RunOnce();
    std::unique_lock lock(mutex_);
    const auto has_work = [this] { return stopping_ || !inbox_.empty() || !asked_.empty(); };
    if (wake_us == kNever) {
      wake_.wait(lock, has_work);
    } else {
      wake_.wait_for(lock, std::chrono::microseconds(std::max<int64_t>(wake_us - clock_->NowMicros(), 0)), has_work);
    }
    if (stopping_) return;
  }
}

// The inbox.

absl::Status StepLoop::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  PromptHashes hashes(request.cache_salt, request.prompt);
  return Submit(std::move(request), std::move(sink), &hashes);
}

absl::Status StepLoop::Submit(Request request, std::shared_ptr<RequestSink> sink, PromptHashes* hashes) {
  const std::shared_ptr<PrefixIndex> index = IndexFor(request);
  if (index != nullptr) index->Expect(request.id, hashes);
  const RequestId id = request.id;
  const absl::Status status = Post(std::move(request), std::move(sink));
  if (!status.ok() && index != nullptr) index->Forget(id);
  return status;
}

absl::Status StepLoop::Post(Request request, std::shared_ptr<RequestSink> sink) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return ShuttingDown();
  if (inbox_requests_ >= options_.max_inbox_requests) {
    return absl::ResourceExhaustedError(absl::StrCat("the inbox of worker ", options_.address, " has ", inbox_requests_,
                                                     " requests, the limit is ", options_.max_inbox_requests));
  }
  const int wanted_blocks = BlocksWanted(static_cast<int>(request.prompt.size()), load_.block_size);
  ++inbox_requests_;
  inbox_wanted_blocks_ += wanted_blocks;
  cancellable_.insert(request.id);
  inbox_.push_back(Submitted{std::move(request), std::move(sink), wanted_blocks});
  wake_.notify_one();
  return absl::OkStatus();
}

void StepLoop::Cancel(RequestId request, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  if (cancellable_.erase(request) == 0) return;
  inbox_.emplace_back(Cancelled{request, reason});
  wake_.notify_one();
}

void StepLoop::CancelSample(RequestId request, int sample_index) {
  const std::lock_guard lock(mutex_);
  if (!cancellable_.contains(request)) return;
  inbox_.emplace_back(SampleCancelled{request, sample_index});
  wake_.notify_one();
}

absl::Status StepLoop::Ask(Question question) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return ShuttingDown();
  if (static_cast<int>(asked_.size()) >= options_.max_questions) {
    return absl::ResourceExhaustedError(absl::StrCat("worker ", options_.address, " has ", asked_.size(),
                                                     " questions to answer, the limit is ", options_.max_questions));
  }
  asked_.push_back(std::move(question));
  wake_.notify_one();
  return absl::OkStatus();
}

void StepLoop::SetDraining(bool is_draining) {
  const std::lock_guard lock(mutex_);
  is_draining_ = is_draining;
  auto status = std::make_shared<WorkerStatus>(*status_);
  status->is_draining = is_draining || worker_drains_;
  status_ = std::move(status);
}

void StepLoop::Post(Event event) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back(std::move(event));
  wake_.notify_one();
}

void StepLoop::TakeInbox() {
  const std::lock_guard lock(mutex_);
  events_.swap(inbox_);
  questions_.swap(asked_);
  // Until the round is over they count as load.
  load_.num_requests += inbox_requests_;
  load_.wanted_blocks += inbox_wanted_blocks_;
  inbox_requests_ = 0;
  inbox_wanted_blocks_ = 0;
}

WorkerLoad StepLoop::load() const {
  const std::lock_guard lock(mutex_);
  WorkerLoad load = load_;
  load.is_draining = is_draining_;
  load.num_requests += inbox_requests_;
  load.wanted_blocks += inbox_wanted_blocks_;
  return load;
}

WorkerLoad StepLoop::load(const Request& request, PromptHashes* hashes) const {
  WorkerLoad load = this->load();
  const std::shared_ptr<PrefixIndex> index = IndexFor(request);
  if (index != nullptr) load.num_cached_tokens = index->NumTokens(hashes);
  return load;
}

std::shared_ptr<PrefixIndex> StepLoop::IndexFor(const Request& request) const {
  if (request.bypass_prefix_cache) return nullptr;
  const std::lock_guard lock(mutex_);
  return prefix_index_;
}

// The rounds.

int64_t StepLoop::RunOnce() {
  TakeInbox();
  now_us_ = clock_->NowMicros();
  for (Event& event : events_) {
    std::visit([this](auto& e) { Handle(std::move(e)); }, event);
  }
  events_.clear();
  PollLink();
  ExpireDeadlines();
  if (blocks_ != nullptr) blocks_->ExpirePins(now_us_);
  PlanSteps();
  EndDrainedSession();
  AnswerQuestions(scheduler_.get(), blocks_.get());
  table_auditor_.OnRound(now_us_, scheduler_ == nullptr ? 0 : scheduler_->counts().running);
  Publish();
  return NextWake();
}

void StepLoop::Handle(Submitted event) {
  const RequestId id = event.request.id;
  const absl::Status status = Queue(&event);
  if (status.ok()) return;
  if (!absl::IsAlreadyExists(status)) {
    const std::lock_guard lock(mutex_);
    cancellable_.erase(id);
    if (prefix_index_ != nullptr) prefix_index_->Forget(id);
  }
  event.sink->OnFailed(status);
}

absl::Status StepLoop::Queue(Submitted* event) {
  StepLoopStats& stats = current_.stats;
  if (!link_.is_ready() && !MayReturn()) {
    ++stats.refused_worker_lost;
    return absl::UnavailableError(
        absl::StrCat("worker ", options_.address, " is not connected: ", link_.last_error().message()));
  }
  const Request& request = event->request;
  const RequestId id = request.id;
  LiveRequests::Entry entry{.sink = event->sink,
                            .arrival_us = request.arrival_us,
                            .deadline_us = request.deadline_us,
                            .wanted_blocks = event->wanted_blocks,
                            .num_prompt_tokens = static_cast<int>(request.prompt.size())};
  if (options_.tenants != nullptr) entry.tenant_slot = options_.tenants->SlotOf(request.tenant);
  const absl::Status status = scheduler_->Submit(std::move(event->request));
  if (!status.ok()) {
    ++(absl::IsResourceExhausted(status) ? stats.refused_queue_full : stats.refused_never_fits);
    return status;
  }
  live_.Add(id, std::move(entry));
  return absl::OkStatus();
}

void StepLoop::Handle(Cancelled event) {
  if (live_.Drop(event.request, event.reason, now_us_)) scheduler_->Cancel(event.request);
}

void StepLoop::Handle(SampleCancelled event) {
  if (scheduler_ != nullptr) scheduler_->CancelSample(event.request, event.sample_index);
}

void StepLoop::Handle(Described event) {
  if (!link_.is_current(event.epoch)) return;
  if (absl::Status status = hooks_.admit_worker(event.description); !status.ok()) return LoseWorker(std::move(status));
  AdoptPool(event.description);
  link_.OnDescribed(event.description);
}

void StepLoop::Handle(Opened event) {
  if (!link_.is_current(event.epoch)) return;
  link_.OnOpened();
  current_.last_step_us = now_us_;
  tokens_at_open_ = current_.stats.generated_tokens;
  logged_waiting_ = false;
  logged_reason_ = absl::OkStatus();
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_.address) << " joined: epoch " << Named("epoch", event.epoch)
                   << ", model " << description_->model_name << ", " << description_->num_blocks << " blocks of "
                   << description_->block_size << " tokens, " << description_->max_sequences << " rows, "
                   << description_->device << "; " << live_.size() << " requests waited for it";
}

void StepLoop::Handle(Answered event) {
  if (!link_.is_current(event.epoch)) return;
  absl::Status status = scheduler_->CheckResult(event.result);
  if (status.ok()) status = table_auditor_.OnResult(event.result, scheduler_.get());
  if (!status.ok()) return LoseWorker(std::move(status));
  const WorkerLink::SentPlan plan = link_.OnResult(now_us_);
  current_.last_step_us = now_us_;
  if (step_budget_.has_value() && plan.num_tokens > 0) {
    step_budget_->Record(plan.num_tokens, event.duration_us);
    scheduler_->SetTokenBudget(step_budget_->tokens());
  }
  current_.stats.step_seconds.Observe(Seconds(now_us_ - plan.sent_us));
  current_.stats.worker_step_seconds.Observe(Seconds(event.duration_us));
  live_.Deliver(scheduler_->Commit(std::move(event.result)), plan.sent_us, now_us_);
}

void StepLoop::Handle(Draining event) {
  if (!link_.is_current(event.epoch)) return;
  link_.OnDraining();
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_.address) << " drains; " << live_.size()
                   << " requests end there";
}

void StepLoop::Handle(Lost event) {
  if (link_.is_current(event.epoch)) LoseWorker(std::move(event.reason));
}

// Its requests wait for it, new ones too.
bool StepLoop::MayReturn() const {
  return scheduler_ != nullptr && !link_.is_ready() && now_us_ < lost_since_us_ + options_.worker_grace_us;
}

// A worker that comes back with another pool cannot take its requests back: the scheduler has promised them blocks.
void StepLoop::AdoptPool(const WorkerDescription& description) {
  const bool same_pool = description_.has_value() && description_->HasPoolOf(description);
  description_ = description;
  description_->tokenizer_files.clear();
  if (same_pool) return;

  FailAll(absl::UnavailableError(absl::StrCat("worker ", options_.address, " came back with another pool")));
  const SchedulerOptions scheduler = NarrowedTo(description, options_.scheduler);
  CountSchedulerWork();
  counted_ = {};
  counted_evictions_ = 0;
  scheduler_.reset();
  auto index = options_.has_prefix_cache ? std::make_shared<PrefixIndex>(description.block_size) : nullptr;
  blocks_ = std::make_unique<PagedBlockManager>(PagedBlockManagerOptions{
      .num_blocks = description.num_blocks,
      .block_size = description.block_size,
      .num_host_blocks = description.num_host_blocks,
      .has_prefix_cache = options_.has_prefix_cache,
      .max_pinned_blocks = static_cast<int>(options_.max_pinned_share * description.num_blocks),
      .index = index.get()});
  scheduler_ = std::make_unique<Scheduler>(scheduler, blocks_.get());
  if (options_.max_step_us > 0) {
    step_budget_.emplace(options_.max_step_us, scheduler.max_tokens_per_step);
    scheduler_->SetTokenBudget(step_budget_->tokens());
  }
  const std::lock_guard lock(mutex_);
  prefix_index_ = std::move(index);
}

void StepLoop::LoseWorker(absl::Status reason) {
  if (link_.is_ready()) {
    QUIRE_LOG(kWarning) << "worker " << Named("worker", options_.address) << " lost in epoch "
                        << Named("epoch", link_.epoch()) << " after " << Named("step", link_.num_steps())
                        << " steps: " << reason.message() << "; " << live_.size() << " requests wait for it";
    ++current_.stats.worker_losses;
    current_.stats.interruptions += scheduler_->counts().running;
    lost_since_us_ = now_us_;
    scheduler_->AbandonAll();
    table_auditor_.OnLost(reason);
    CountFruitlessSession();
  } else {
    LogFailedAttempt(reason);
  }
  link_.Lose(std::move(reason), now_us_);
}

// Who was placed here by what load() said before it told of the drain has come in by the round after: on_change waits
// for them.
void StepLoop::EndDrainedSession() {
  if (!drain_is_public_ || !link_.is_draining() || live_.size() > 0 || link_.num_plans_in_flight() > 0) return;
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_.address) << " has drained; its session ends";
  lost_since_us_ = now_us_;
  scheduler_->AbandonAll();
  link_.Lose(absl::UnavailableError("the worker has drained"), now_us_);
}

// Every reason once, and that nobody is there yet at first only as what it is.
void StepLoop::LogFailedAttempt(const absl::Status& reason) {
  if (absl::IsUnavailable(reason) && now_us_ < lost_since_us_ + kQuietStartUs) {
    if (!std::exchange(logged_waiting_, true)) {
      QUIRE_LOG(kInfo) << "waiting for worker " << Named("worker", options_.address);
    }
  } else if (reason != logged_reason_) {
    QUIRE_LOG(kWarning) << "worker " << Named("worker", options_.address) << " cannot be used: " << reason.message();
    logged_reason_ = reason;
  }
}

// A request can be what kills its worker: it must not do so for ever.
void StepLoop::CountFruitlessSession() {
  const bool had_work = link_.num_plans_in_flight() > 0;
  const bool gave_tokens = current_.stats.generated_tokens > tokens_at_open_;
  if (gave_tokens) num_fruitless_sessions_ = 0;
  if (gave_tokens || !had_work || ++num_fruitless_sessions_ < kMaxFruitlessSessions) return;
  num_fruitless_sessions_ = 0;
  FailAll(absl::UnavailableError(absl::StrCat("worker ", options_.address, " was lost ", kMaxFruitlessSessions,
                                              " times in a row before it gave a token; perhaps one of its requests "
                                              "is the cause")));
}

void StepLoop::FailAll(const absl::Status& status) {
  const auto failed = live_.FailAll(status);
  for (const RequestId request : failed) scheduler_->Cancel(request);
  if (!failed.empty()) {
    QUIRE_LOG(kWarning) << failed.size() << " requests failed: " << status.message();
  }
}

void StepLoop::PollLink() {
  if (absl::Status status = link_.Poll(now_us_); !status.ok()) LoseWorker(std::move(status));
  if (link_.is_ready() || live_.size() == 0 || now_us_ < lost_since_us_ + options_.worker_grace_us) return;
  FailAll(
      absl::UnavailableError(absl::StrCat("worker ", options_.address, " did not come back within ",
                                          options_.worker_grace_us / 1'000'000, " s: ", link_.last_error().message())));
}

// A busy or lost worker does not put them off.
void StepLoop::ExpireDeadlines() {
  for (const RequestId request : live_.Expire(now_us_)) scheduler_->Cancel(request);
}

// Requests are there and none of them can go on, ever: nothing but pins can hold what they lack.
bool StepLoop::EndPinForRequests() {
  return link_.num_plans_in_flight() == 0 && live_.size() > 0 && blocks_->EndOnePin();
}

void StepLoop::PlanSteps() {
  while (link_.is_ready() && link_.num_plans_in_flight() < options_.scheduler.max_plans_in_flight) {
    const int64_t start_us = clock_->NowMicros();
    StepPlan plan = scheduler_->Plan();
    if (plan.empty() && EndPinForRequests()) continue;
    if (plan.empty()) return;
    table_auditor_.OnPlanned(*scheduler_, *blocks_, &plan);
    const int64_t planned_us = clock_->NowMicros();
    current_.stats.plan_seconds.Observe(Seconds(planned_us - start_us));
    current_.stats.step_tokens.Observe(plan.num_tokens());
    current_.stats.cow_copies += static_cast<int64_t>(plan.copies.size());
    current_.stats.swapped_out_blocks += static_cast<int64_t>(plan.swap_outs.size());
    current_.stats.swapped_in_blocks += static_cast<int64_t>(plan.swap_ins.size());
    link_.Send(plan, planned_us);
  }
}

void StepLoop::AnswerQuestions(Scheduler* scheduler, PagedBlockManager* blocks) {
  const View view{options_.address, link_, scheduler, blocks, &table_auditor_, now_us_};
  for (const Question& question : questions_) question(view);
  questions_.clear();
}

void StepLoop::CountSchedulerWork() {
  if (scheduler_ == nullptr) return;
  StepLoopStats& stats = current_.stats;
  const SchedulerCounts counts = scheduler_->counts();
  stats.preemptions += counts.preemptions - counted_.preemptions;
  stats.swap_outs += counts.swap_outs - counted_.swap_outs;
  stats.forks += counts.forks - counted_.forks;
  stats.recomputed_tokens += counts.recomputed_tokens - counted_.recomputed_tokens;
  counted_ = counts;
  stats.evictions += blocks_->num_evictions() - counted_evictions_;
  counted_evictions_ = blocks_->num_evictions();
}

void StepLoop::Publish() {
  CountSchedulerWork();
  WorkerLoad load{.is_ready = link_.is_ready() && !link_.is_draining(),
                  .may_return = MayReturn(),
                  .wanted_blocks = live_.wanted_blocks(),
                  .num_requests = live_.size()};
  current_.is_ready = link_.is_ready();
  current_.last_error = link_.is_draining() ? "the worker is draining" : std::string(link_.last_error().message());
  current_.epoch = link_.epoch();
  current_.steps = link_.num_steps();
  current_.num_plans_in_flight = link_.num_plans_in_flight();
  current_.progress_us = link_.progress_us();
  if (scheduler_ != nullptr) {
    current_.blocks = blocks_->counts();
    current_.block_size = load.block_size = blocks_->block_size();
    const SchedulerCounts counts = scheduler_->counts();
    current_.waiting_requests = counts.waiting;
    current_.running_requests = counts.running;
    current_.swapped_requests = counts.swapped;
    current_.device = description_->device;
    current_.numerics_fingerprint = description_->numerics_fingerprint;
    load.num_blocks = current_.blocks.total;
    load.max_sequences = description_->max_sequences;
    load.num_free_blocks = current_.blocks.free + current_.blocks.evictable;
  }
  auto made = std::make_shared<WorkerStatus>(current_);
  std::shared_ptr<const WorkerStatus> status;  // The old one goes without the lock.
  bool has_changed;
  {
    const std::lock_guard lock(mutex_);
    has_changed = load_.is_ready != load.is_ready || (load.num_requests == 0 && load_.num_requests != 0);
    load_ = load;
    worker_drains_ = link_.is_draining();
    made->is_draining = is_draining_ || worker_drains_;
    status = std::move(made);
    status_.swap(status);
    for (const RequestId request : live_.TakeEnded()) {
      cancellable_.erase(request);
      if (prefix_index_ != nullptr) prefix_index_->Forget(request);
    }
  }
  if (has_changed) hooks_.on_change();
  drain_is_public_ = link_.is_draining();
}

int64_t StepLoop::NextWake() const {
  if (link_.is_draining() && live_.size() == 0 && link_.num_plans_in_flight() == 0) return now_us_;
  int64_t wake_us = std::min({link_.next_poll_us(), live_.next_deadline_us(), table_auditor_.next_deadline_us()});
  if (blocks_ != nullptr) wake_us = std::min(wake_us, blocks_->next_pin_expiry_us());
  if (!link_.is_ready() && live_.size() > 0) wake_us = std::min(wake_us, lost_since_us_ + options_.worker_grace_us);
  return wake_us;
}

}  // namespace quire
