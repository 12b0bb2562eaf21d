#include "kv_manager/step_loop.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace quire {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int kMaxFruitlessSessions = 3;

double Seconds(int64_t us) {
  return static_cast<double>(us) * 1e-6;
}

absl::Status ShuttingDown() {
  return absl::UnavailableError("the manager is shutting down");
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
  Publish();
}

void StepLoop::ThreadMain() {
  while (true) {
    const int64_t wake_us = RunOnce();
    std::unique_lock lock(mutex_);
    const auto has_work = [this] { return stopping_ || !inbox_.empty(); };
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

void StepLoop::Cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  if (cancellable_.erase(request) == 0) return;
  inbox_.emplace_back(Cancelled{request});
  wake_.notify_one();
}

void StepLoop::OnDescribed(uint64_t epoch, WorkerDescription description) {
  Post(Described{epoch, std::move(description)});
}

void StepLoop::OnOpened(uint64_t epoch) {
  Post(Opened{epoch});
}

void StepLoop::OnResult(uint64_t epoch, StepResult result, int64_t duration_us) {
  Post(Answered{epoch, std::move(result), duration_us});
}

void StepLoop::OnLost(uint64_t epoch, absl::Status reason) {
  Post(Lost{epoch, std::move(reason)});
}

void StepLoop::Post(Event event) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back(std::move(event));
  wake_.notify_one();
}

void StepLoop::TakeInbox() {
  const std::lock_guard lock(mutex_);
  events_.swap(inbox_);
  // Until the round is over they count as load.
  load_.num_requests += inbox_requests_;
  load_.wanted_blocks += inbox_wanted_blocks_;
  inbox_requests_ = 0;
  inbox_wanted_blocks_ = 0;
}

std::shared_ptr<const WorkerStatus> StepLoop::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

WorkerLoad StepLoop::load() const {
  const std::lock_guard lock(mutex_);
  WorkerLoad load = load_;
  load.num_requests += inbox_requests_;
  load.wanted_blocks += inbox_wanted_blocks_;
  return load;
}

int StepLoop::inbox_size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(inbox_.size());
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
  PlanSteps();
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
  }
  event.sink->OnFailed(status);
}

absl::Status StepLoop::Queue(Submitted* event) {
  StepLoopStats& stats = current_.stats;
  if (scheduler_ == nullptr || (!link_.is_ready() && now_us_ >= lost_since_us_ + options_.worker_grace_us)) {
    ++stats.refused_worker_lost;
    return absl::UnavailableError(
        absl::StrCat("worker ", options_.address, " is not connected: ", link_.last_error().message()));
  }
  const Request& request = event->request;
  const RequestId id = request.id;
  const int64_t num_prompt_tokens = static_cast<int64_t>(request.prompt.size());
  LiveRequests::Entry entry{.sink = event->sink,
                            .arrival_us = request.arrival_us,
                            .deadline_us = request.deadline_us,
                            .wanted_blocks = event->wanted_blocks};
  const absl::Status status = scheduler_->Submit(std::move(event->request));
  if (!status.ok()) {
    ++(absl::IsResourceExhausted(status) ? stats.refused_queue_full : stats.refused_never_fits);
    return status;
  }
  stats.prompt_tokens += num_prompt_tokens;
  live_.Add(id, std::move(entry));
  return absl::OkStatus();
}

void StepLoop::Handle(Cancelled event) {
  if (live_.Drop(event.request)) scheduler_->Cancel(event.request);
}

void StepLoop::Handle(Described event) {
  if (!link_.is_current(event.epoch)) return;
  if (absl::Status status = hooks_.admit_worker(event.description); !status.ok()) return LoseWorker(std::move(status));
  AdoptPool(event.description);
  link_.OnDescribed();
}

void StepLoop::Handle(Opened event) {
  if (!link_.is_current(event.epoch)) return;
  link_.OnOpened();
  tokens_at_open_ = current_.stats.generated_tokens;
  QUIRE_LOG(kInfo) << "worker " << options_.address << " joined: epoch " << event.epoch << ", model "
                   << description_->model_name << ", " << description_->num_blocks << " blocks of "
                   << description_->block_size << " tokens, " << description_->max_sequences << " rows, "
                   << description_->device << "; " << live_.size() << " requests waited for it";
}

void StepLoop::Handle(Answered event) {
  if (!link_.is_current(event.epoch)) return;
  if (absl::Status status = scheduler_->CheckResult(event.result); !status.ok()) return LoseWorker(std::move(status));
  current_.stats.step_seconds.Observe(Seconds(link_.OnResult(now_us_)));
  current_.stats.worker_step_seconds.Observe(Seconds(event.duration_us));
  live_.Deliver(scheduler_->Commit(std::move(event.result)), now_us_);
}

void StepLoop::Handle(Lost event) {
  if (link_.is_current(event.epoch)) LoseWorker(std::move(event.reason));
}

// A worker that comes back with another pool cannot take its requests back: the scheduler has promised them blocks.
void StepLoop::AdoptPool(const WorkerDescription& description) {
  const bool same_pool = description_.has_value() && description_->num_blocks == description.num_blocks &&
                         description_->block_size == description.block_size &&
                         description_->max_sequences == description.max_sequences &&
                         description_->max_tokens_per_step == description.max_tokens_per_step;
  description_ = description;
  description_->tokenizer_files.clear();
  if (same_pool) return;

  FailAll(absl::UnavailableError(absl::StrCat("worker ", options_.address, " came back with another pool")));
  SchedulerOptions scheduler = options_.scheduler;
  scheduler.max_sequences = description.max_sequences;
  scheduler.max_tokens_per_step = std::min(scheduler.max_tokens_per_step, description.max_tokens_per_step);
  scheduler.max_chunk_tokens = std::min(scheduler.max_chunk_tokens, scheduler.max_tokens_per_step);
  scheduler.max_context_tokens = std::min(scheduler.max_context_tokens, description.max_context_tokens);
  if (scheduler_ != nullptr) {
    const SchedulerCounts counts = scheduler_->counts();
    earlier_preemptions_ += counts.preemptions;
    earlier_recomputed_tokens_ += counts.recomputed_tokens;
  }
  scheduler_.reset();
  blocks_ = std::make_unique<PagedBlockManager>(description.num_blocks, description.block_size);
  scheduler_ = std::make_unique<Scheduler>(scheduler, blocks_.get());
}

void StepLoop::LoseWorker(absl::Status reason) {
  if (link_.is_ready()) {
    QUIRE_LOG(kWarning) << "worker " << options_.address << " lost in epoch " << link_.epoch() << " after "
                        << link_.num_steps() << " steps: " << reason.message() << "; " << live_.size()
                        << " requests wait for it";
    ++current_.stats.worker_losses;
    lost_since_us_ = now_us_;
    scheduler_->AbandonAll();
    CountFruitlessSession();
  } else if (reason != link_.last_error()) {
    QUIRE_LOG(kWarning) << "worker " << options_.address << " cannot be used: " << reason.message();
  }
  link_.Lose(std::move(reason), now_us_);
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
  for (const RequestId request : live_.FailAll(status)) scheduler_->Cancel(request);
}

void StepLoop::PollLink() {
  if (absl::Status status = link_.Poll(now_us_); !status.ok()) LoseWorker(std::move(status));
  if (link_.is_ready() || live_.size() == 0 || now_us_ < lost_since_us_ + options_.worker_grace_us) return;
  FailAll(
      absl::UnavailableError(absl::StrCat("worker ", options_.address, " did not come back within ",
                                          options_.worker_grace_us / 1'000'000, " s: ", link_.last_error().message())));
}

// The scheduler looks at deadlines only when it plans; a busy or lost worker does not put them off.
void StepLoop::ExpireDeadlines() {
  for (const RequestId request : live_.Expired(now_us_)) {
    scheduler_->Cancel(request);
    live_.Finish(request, FinishReason::kDeadline, now_us_);
  }
}

// Also when nothing is left to run: planning is when the blocks of cancelled requests come back.
void StepLoop::PlanSteps() {
  while (link_.is_ready() && link_.num_plans_in_flight() < options_.scheduler.max_plans_in_flight) {
    const int64_t start_us = clock_->NowMicros();
    const StepPlan plan = scheduler_->Plan(now_us_);
    if (plan.slices.empty()) return;
    const int64_t planned_us = clock_->NowMicros();
    current_.stats.plan_seconds.Observe(Seconds(planned_us - start_us));
    current_.stats.step_tokens.Observe(plan.num_tokens());
    current_.stats.cow_copies += static_cast<int64_t>(plan.copies.size());
    link_.Send(plan, planned_us);
  }
}

void StepLoop::Publish() {
  WorkerLoad load{.is_ready = link_.is_ready(), .wanted_blocks = live_.wanted_blocks(), .num_requests = live_.size()};
  current_.is_ready = link_.is_ready();
  current_.last_error = std::string(link_.last_error().message());
  current_.epoch = link_.epoch();
  current_.steps = link_.num_steps();
  if (scheduler_ != nullptr) {
    current_.blocks = blocks_->counts();
    current_.block_size = load.block_size = blocks_->block_size();
    const SchedulerCounts counts = scheduler_->counts();
    current_.waiting_requests = counts.waiting;
    current_.running_requests = counts.running;
    current_.stats.preemptions = earlier_preemptions_ + counts.preemptions;
    current_.stats.recomputed_tokens = earlier_recomputed_tokens_ + counts.recomputed_tokens;
    current_.device = description_->device;
    current_.numerics_fingerprint = description_->numerics_fingerprint;
    load.num_blocks = current_.blocks.total;
    load.num_free_blocks = current_.blocks.free;
  }
  auto status = std::make_shared<const WorkerStatus>(current_);
  bool has_changed;
  {
    const std::lock_guard lock(mutex_);
    has_changed = load_.is_ready != load.is_ready || (load.num_requests == 0 && load_.num_requests != 0);
    load_ = load;
    status_.swap(status);
    for (const RequestId request : live_.TakeEnded()) cancellable_.erase(request);
  }
  if (has_changed) hooks_.on_change();
}

int64_t StepLoop::NextWake() const {
  int64_t wake_us = std::min(link_.next_poll_us(), live_.next_deadline_us());
  if (!link_.is_ready() && live_.size() > 0) wake_us = std::min(wake_us, lost_since_us_ + options_.worker_grace_us);
  return wake_us;
}

}  // namespace quire
