// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/manager_engine.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/engine/step_loop.h"
#include "scheduler/request_size.h"

namespace quire {
namespace {

// A question that is put to several step loops. Each loop owns a reference; `done` is called when the last reference is
// dropped. Thread-safe.
class QuestionRound {
 public:
  QuestionRound(LoopQuestion question, std::function<void(const absl::Status&)> done)
      : question_(std::move(question)), done_(std::move(done)) {}
  ~QuestionRound() { done_(status_); }

  void Ask(const LoopView& view) const { question_(view); }
  void Fail(const absl::Status& status) {
    const MutexLock lock(&mutex_);
    status_.Update(status);
  }

 private:
  const LoopQuestion question_;
  const std::function<void(const absl::Status&)> done_;
  Mutex mutex_;
  absl::Status status_ QUIRE_GUARDED_BY(mutex_);  // The first error.
};

TenantTable TableOf(const TenantShares& shares) {
  TenantTable table{.by_tenant = {}, .others = {.share = shares.others}};
  for (const auto& [tenant, share] : shares.by_tenant) table.by_tenant[tenant].share = share;
  return table;
}

// The result borrows `request`.
PlacementRequest ToPlace(const Request& request, const TenantShare& share) {
  return {.generation = request.generation,
          .num_prompt_tokens = static_cast<int>(request.prompt.size()),
          .num_rows = NumRows(request),
          .max_blocks = [&request](const CacheGroups& groups) { return MaxBlocks(request, groups); },
          .max_blocks_share = share.max_blocks_share};
}

// Number of removed workers after which nothing is adopted any more. By then an earlier manager is long gone.
constexpr size_t kMaxRemoved = 1 << 16;

// For a request that moves: the share of its tenant was checked when it was accepted.
constexpr TenantShare kWholePool;

}  // namespace

ManagerEngine::ManagerEngine(const StepLoopOptions& options, Hooks hooks, const Clock* clock, int max_tenant_labels,
                             std::vector<std::string> warnings)
    : options_(options),
      hooks_(std::move(hooks)),
      clock_(clock),
      started_us_(clock->NowMicros()),
      adopts_until_us_(started_us_ + options.adopt_window_us),
      warnings_(std::move(warnings)),
      registry_(options.scheduler.max_context_tokens, options.reads_generation_config),
      tenants_(max_tenant_labels),
      quotas_(TableOf(options.scheduler.tenants)),
      first_epoch_(options.link.first_epoch) {}

ManagerEngine::~ManagerEngine() {
  Stop();
}

void ManagerEngine::SetWorkers(const std::vector<std::string>& addresses) {
  std::vector<Worker> leaving;  // Destroyed after the lock is released: a loop that ends may wait for the lock.
  const MutexLock lock(&mutex_);
  if (is_draining_) return;
  const auto stays = [&](const Worker& worker) {
    const WorkerLoad load = worker.loop->load();
    return load.is_ready || load.num_requests > 0 ||
           std::find(addresses.begin(), addresses.end(), worker.address) != addresses.end();
  };
  const auto first_leaving = std::stable_partition(workers_.begin(), workers_.end(), stays);
  for (auto it = first_leaving; it != workers_.end(); ++it) {
    const std::shared_ptr<const WorkerStatus> status = it->loop->status();
    retired_.Add(status->stats);
    if (status->last_step_us != 0 && removed_.size() < kMaxRemoved) removed_.insert(it->address);
  }
  leaving.assign(std::make_move_iterator(first_leaving), std::make_move_iterator(workers_.end()));
  workers_.erase(first_leaving, workers_.end());
  // Before the new loops start, because from then on their workers may describe themselves.
  std::set<std::string> kept(addresses.begin(), addresses.end());
  for (const Worker& worker : workers_) kept.insert(worker.address);
  registry_.Retain(std::move(kept));
  for (const std::string& address : addresses) AddWorker(address);
}

bool ManagerEngine::HasWorker(const std::string& address) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&address](const Worker& worker) { return worker.address == address; });
}

absl::StatusOr<StepLoop*> ManagerEngine::FindLoop(const std::string& address) const {
  if (is_stopped_) return ShuttingDownError();
  for (const Worker& worker : workers_) {
    if (worker.address == address) return worker.loop.get();
  }
  const std::string known = absl::StrJoin(
      workers_, ", ", [](std::string* out, const Worker& worker) { absl::StrAppend(out, worker.address); });
  return absl::NotFoundError(absl::StrCat("worker: none has the address \"", absl::CHexEscape(address.substr(0, 64)),
                                          "\"; there ", workers_.size() == 1 ? "is " : "are ",
                                          workers_.empty() ? "none" : known));
}

void ManagerEngine::AddWorker(const std::string& address) {
  if (HasWorker(address)) return;
  StepLoopOptions options = options_;
  options.address = address;
  options.link.first_epoch = first_epoch_;
  options.link.adopts = options.adopt_window_us > 0 && removed_.size() < kMaxRemoved && !removed_.contains(address);
  options.tenants = &tenants_;
  options.quotas = &quotas_;
  StepLoopHooks hooks{
      .admit_worker = [this, address](const WorkerDescription& worker) { return registry_.Admit(address, worker); },
      .family_of = [this](GenerationId generation) { return registry_.FamilyOf(generation); },
      .other_numerics = [this](FamilyId family, GenerationId own) { return OtherNumerics(family, own); },
      .on_change = [this] { OnLoopChange(); },
      .move_request = [this, address](const MoveWish& wish,
                                      TakeRequest take) { return MoveRequest(address, wish, take); },
      .find_movable = [this, address](absl::Span<const MoveWish> wishes) { return FindMovable(address, wishes); },
      .restore_request = hooks_.restore_request == nullptr
                             ? RestoreRequestHook()
                             : [this](const RequestToRestore& request) { return RestoreRequest(request); }};
  workers_.push_back(
      {address, std::make_unique<StepLoop>(options, hooks_.make_client(address), std::move(hooks), clock_)});
  workers_.back().loop->Start();
}

absl::Status ManagerEngine::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  // Step loops wait for the lock, so the prompt is hashed before it is taken. It is hashed again under
  // the lock only for a worker with another block size than the last one.
  PromptHashes hashes(request.cache_salt, request.prompt);
  if (const int block_size = block_size_; block_size > 0 && !request.bypass_prefix_cache) hashes.Of(block_size);
  const std::string tenant = request.tenant;
  const MutexLock lock(&mutex_);
  const absl::Status status = Place(std::move(request), std::move(sink), &hashes);
  if (status.ok()) {
    tenants_.SlotOf(tenant);  // Now, so that the refusals from here on count under its name.
    return status;
  }
  const size_t slot = tenants_.FindSlot(tenant);
  if (tenant_refusals_.size() <= slot) tenant_refusals_.resize(slot + 1);
  ++tenant_refusals_[slot];
  return status;
}

absl::Status ManagerEngine::Place(Request request, std::shared_ptr<RequestSink> sink, PromptHashes* hashes) {
  if (is_draining_) {
    ++refusals_.draining;
    return WithRetryDelay(WithReason(absl::UnavailableError("the manager is draining"), "DRAINING"), /*delay_ms=*/1000);
  }
  absl::StatusOr<std::unique_ptr<TenantQuotas::Ticket>> ticket = quotas_.Enter(request.tenant);
  if (!ticket.ok()) {
    ++refusals_.tenant_limit;
    return ticket.status();
  }
  QUIRE_ASSIGN_OR_RETURN(const int chosen, ChooseFor(request, hashes));
  block_size_ = loads_[chosen].groups.block_size();
  const absl::Status status =
      workers_[chosen].loop->Submit(std::move(request), std::move(sink), hashes, *std::move(ticket));
  if (absl::IsResourceExhausted(status)) ++refusals_.inbox_full;
  return status;
}

absl::StatusOr<int> ManagerEngine::ChooseFor(const Request& request, PromptHashes* hashes) {
  loads_.clear();
  for (const Worker& worker : workers_) loads_.push_back(worker.loop->load(request, hashes));
  const std::shared_ptr<const ServedModel> served = ServedNow();
  const bool is_replaced = served != nullptr && served->generation != request.generation;
  // A lost worker of an old generation will probably come back in the new one, so no request waits for it.
  for (WorkerLoad& load : loads_) load.may_return = load.may_return && !is_replaced;
  const PlacementRequest placed = ToPlace(request, quotas_.shares()->Of(request.tenant));
  const int64_t now_us = clock_->NowMicros();
  absl::Status first_refusal;
  while (const std::optional<int> chosen = ChooseWorker(loads_, placed)) {
    WorkerLoad& load = loads_[*chosen];
    absl::Status refusal =
        CheckWait(options_.wait_limits, load.forecast, load.forecast.waiting_tokens, request, now_us);
    if (refusal.ok()) return *chosen;
    load.is_ready = false;
    if (!first_refusal.ok()) continue;
    first_refusal = std::move(refusal);
    for (WorkerLoad& other : loads_) {
      other.is_ready = other.is_ready && CanHold(other, placed);
      other.may_return = false;
    }
  }
  if (!first_refusal.ok()) {
    ++refusals_.overloaded;
    return first_refusal;
  }
  ++refusals_.no_worker;
  return is_replaced ? ModelReplacedError() : NoWorkerError();
}

// The request was accepted before, so it continues even if its tenant has reached a limit.
absl::StatusOr<RequestRestored> ManagerEngine::RestoreRequest(const RequestToRestore& request) {
  RequestToRestore complete = request;
  for (const std::shared_ptr<const ServedModel>& model : registry_.models()) {
    if (model->generation == request.generation) complete.model = model;
  }
  if (complete.model == nullptr) return ModelReplacedError();
  // A worker with other numerics may have drawn the tokens that the client has.
  complete.repeats_tokens = complete.model->has_exact_numerics() && !options_.changes_numerics;
  absl::StatusOr<RequestRestored> restored = hooks_.restore_request(complete);
  if (!restored.ok()) return restored;
  absl::StatusOr<std::unique_ptr<TenantQuotas::Ticket>> ticket = quotas_.Enter(restored->request.tenant);
  if (ticket.ok()) restored->ticket = *std::move(ticket);
  return restored;
}

void ManagerEngine::BeginToLead(uint64_t unix_ms) {
  adopts_until_us_ = clock_->NowMicros() + options_.adopt_window_us;
  const MutexLock lock(&mutex_);
  first_epoch_ = unix_ms;
}

bool ManagerEngine::IsRestoring() const {
  if (clock_->NowMicros() >= adopts_until_us_) return false;
  const MutexLock lock(&mutex_);
  return workers_.empty() || std::any_of(workers_.begin(), workers_.end(),
                                         [](const Worker& worker) { return !worker.loop->load().has_tried; });
}

bool ManagerEngine::MoveRequest(const std::string& from, const MoveWish& wish, TakeRequest take) {
  const Request& request = wish.request();
  PromptHashes hashes(request.cache_salt, request.prompt);  // Submit computes the same.
  if (const int block_size = block_size_; block_size > 0 && !request.bypass_prefix_cache) hashes.Of(block_size);
  const MutexLock lock(&mutex_);
  if (is_stopped_) return false;
  loads_.clear();
  for (const Worker& worker : workers_) {
    loads_.push_back(worker.loop->load(request, &hashes));
    // The load of `from` may be older than its loss.
    loads_.back().is_ready &= worker.address != from;
  }
  const PlacementRequest placed = ToPlace(request, kWholePool);
  if (!KeepTargets(placed, wish.needs(), absl::MakeSpan(loads_))) return false;
  const std::optional<int> chosen = ChooseWorker(loads_, placed);
  // The caller of Cancel holds the lock, too. So it finds the request in the one loop or in the other.
  workers_[*chosen].loop->Adopt(take(), &hashes);
  return true;
}

size_t ManagerEngine::FindMovable(const std::string& from, absl::Span<const MoveWish> wishes) const {
  std::vector<WorkerLoad> loads;
  {
    const MutexLock lock(&mutex_);
    for (const Worker& worker : workers_) {
      if (worker.address != from) loads.push_back(worker.loop->load());
    }
  }
  const auto can_move = [&](const MoveWish& wish) {
    const PlacementRequest placed = ToPlace(wish.request(), kWholePool);
    const TargetNeeds needs = wish.needs();
    return std::any_of(loads.begin(), loads.end(),
                       [&](const WorkerLoad& load) { return CanTakeOver(load, placed, needs); });
  };
  return std::find_if(wishes.begin(), wishes.end(), can_move) - wishes.begin();
}

std::string ManagerEngine::OtherNumerics(FamilyId family, GenerationId own) const {
  std::set<std::string> numerics;
  const MutexLock lock(&mutex_);
  for (const Worker& worker : workers_) {
    const WorkerLoad load = worker.loop->load();
    if (!load.is_ready || load.family != family || load.generation == own) continue;
    numerics.insert(worker.loop->status()->numerics_fingerprint);
  }
  return absl::StrJoin(numerics, ", ");
}

// Clients see this error. What they must not see, addresses and errors of connections, is in the log and in the status.
absl::Status ManagerEngine::NoWorkerError() const {
  int num_drained_by_operator = 0;
  int num_draining = 0;
  for (const Worker& worker : workers_) {
    if (worker.loop->load().is_drained_by_operator) {
      ++num_drained_by_operator;
    } else if (worker.loop->status()->is_draining) {
      ++num_draining;
    }
  }
  const int num_away = static_cast<int>(workers_.size()) - num_drained_by_operator - num_draining;
  std::string message = absl::StrCat("none of ", workers_.size(), " workers is ready");
  if (num_away > 0) absl::StrAppend(&message, "; ", num_away, num_away == 1 ? " is" : " are", " not connected");
  if (num_draining > 0) absl::StrAppend(&message, "; ", num_draining, num_draining == 1 ? " drains" : " drain");
  if (num_drained_by_operator > 0) {
    absl::StrAppend(&message, "; an operator drains ", num_drained_by_operator, ", `quirectl undrain` ends that");
  }
  return absl::UnavailableError(message);
}

// No table says where a request was placed. All loops are told; those that do not know the request ignore the call.
void ManagerEngine::CancelSample(RequestId request, int sample_index) {
  const MutexLock lock(&mutex_);
  for (const Worker& worker : workers_) worker.loop->CancelSample(request, sample_index);
}

void ManagerEngine::Cancel(RequestId request, FinishReason reason) {
  std::optional<RequestSubmitted> withdrawn;  // Destroyed after the lock is released.
  const MutexLock lock(&mutex_);
  for (const Worker& worker : workers_) {
    std::optional<RequestSubmitted> found = worker.loop->Cancel(request, reason);
    if (found.has_value()) withdrawn = std::move(found);
  }
}

void ManagerEngine::StartDrain() {
  {
    const MutexLock lock(&mutex_);
    is_draining_ = true;
  }
  OnLoopChange();
}

bool ManagerEngine::Drain(absl::Duration timeout, bool awaits_restorable) {
  StartDrain();
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(timeout);
  const MutexLock lock(&mutex_);
  while (NumRequests(awaits_restorable) > 0) {
    if (!loop_changed_.WaitUntil(&mutex_, deadline)) return NumRequests(awaits_restorable) == 0;
  }
  return true;
}

void ManagerEngine::Stop() {
  std::vector<Worker> workers;
  {
    const MutexLock lock(&mutex_);
    is_draining_ = true;
    is_stopped_ = true;
    workers.swap(workers_);
  }
  for (const Worker& worker : workers) worker.loop->Stop();
}

void ManagerEngine::AskAll(LoopQuestion question, std::function<void(const absl::Status&)> done) {
  const auto round = std::make_shared<QuestionRound>(std::move(question), std::move(done));
  const MutexLock lock(&mutex_);
  for (const Worker& worker : workers_) {
    round->Fail(worker.loop->Ask([round](const LoopView& view) { round->Ask(view); }));
  }
}

void ManagerEngine::AskWorker(const std::string& address, LoopQuestion question,
                              std::function<void(const absl::Status&)> done) {
  const auto round = std::make_shared<QuestionRound>(std::move(question), std::move(done));
  const MutexLock lock(&mutex_);
  const absl::StatusOr<StepLoop*> loop = FindLoop(address);
  if (!loop.ok()) return round->Fail(loop.status());
  round->Fail((*loop)->Ask([round](const LoopView& view) { round->Ask(view); }));
}

absl::StatusOr<int> ManagerEngine::SetWorkerDraining(const std::string& address, bool is_draining, bool migrates) {
  int num_requests;
  {
    const MutexLock lock(&mutex_);
    QUIRE_ASSIGN_OR_RETURN(StepLoop* const loop, FindLoop(address));
    loop->SetDrainedByOperator(is_draining, migrates);
    num_requests = loop->load().num_requests;
  }
  const char* const becomes = migrates ? ", and its requests move to other workers" : ", and its requests stay";
  QUIRE_LOG(kInfo) << "an operator " << (is_draining ? "drains worker " : "ends the drain of worker ")
                   << Named("worker", address) << (is_draining ? becomes : "") << "; it has "
                   << Counted(num_requests, "request");
  OnLoopChange();
  return num_requests;
}

ManagerStatus ManagerEngine::status() const {
  ManagerStatus status = StatusOfNow();
  for (const std::shared_ptr<const WorkerStatus>& worker : status.workers) {
    const GenerationId generation = worker->generation;
    if (generation == GenerationId{0} || generation == status.generation) continue;
    std::string difference = registry_.DifferenceBetween(generation, status.generation);
    if (!difference.empty()) status.differences[Value(generation)] = std::move(difference);
  }
  return status;
}

ManagerStatus ManagerEngine::StatusOfNow() const {
  ManagerStatus status;
  const MutexLock lock(&mutex_);
  if (const std::shared_ptr<const ServedModel> model = ServedNow(); model != nullptr) {
    status.model_name = model->name;
    status.generation = model->generation;
  }
  status.now_us = clock_->NowMicros();
  status.uptime_us = status.now_us - started_us_;
  status.is_ready = !is_draining_ && HasReadyWorker();
  status.is_draining = is_draining_;
  status.warnings = warnings_;
  status.totals = retired_;
  for (const Worker& worker : workers_) {
    status.workers.push_back(worker.loop->status());
    status.totals.Add(status.workers.back()->stats);
  }
  status.refusals = refusals_;
  std::vector<TenantUsage>& tenants = status.totals.tenants;
  if (tenants.size() < tenant_refusals_.size()) tenants.resize(tenant_refusals_.size());
  for (size_t i = 0; i < tenant_refusals_.size(); ++i) tenants[i].refusals += tenant_refusals_[i];
  status.tenant_labels = tenants_.labels();
  return status;
}

std::shared_ptr<const ServedModel> ManagerEngine::model() const {
  const MutexLock lock(&mutex_);
  return ServedNow();
}

int64_t ManagerEngine::LongestSequence(GenerationId generation) const {
  const MutexLock lock(&mutex_);
  int64_t longest = 0;
  for (const Worker& worker : workers_) {
    const WorkerLoad load = worker.loop->load();
    if (!load.is_ready || load.is_drained_by_operator || load.generation != generation) continue;
    // The K and V of the last token are never stored.
    longest = std::max(longest, MostTokens(load) + 1);
  }
  return longest;
}

std::shared_ptr<const ServedModel> ManagerEngine::ServedNow() const {
  const std::vector<std::shared_ptr<const ServedModel>> models = registry_.models();
  // A worker that has described itself, and whose session is not open yet, serves nobody.
  const bool has_joined = std::any_of(workers_.begin(), workers_.end(),
                                      [](const Worker& worker) { return worker.loop->load().has_joined; });
  if (models.empty() || !has_joined) return nullptr;
  if (models.size() == 1) return models[0];
  std::set<GenerationId> ready, waiting;
  for (const Worker& worker : workers_) {
    const WorkerLoad load = worker.loop->load();
    if (load.is_drained_by_operator) continue;
    if (load.is_ready) ready.insert(load.generation);
    if (load.may_return) waiting.insert(load.generation);
  }
  for (const std::set<GenerationId>& usable : {ready, waiting}) {
    for (const auto& model : models) {
      if (usable.contains(model->generation)) return model;
    }
  }
  return models[0];
}

bool ManagerEngine::HasReadyWorker() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    const WorkerLoad load = worker.loop->load();
    return load.is_ready && !load.is_drained_by_operator;
  });
}

int ManagerEngine::NumRequests(bool counts_restorable) const {
  int num_requests = 0;
  for (const Worker& worker : workers_) {
    const WorkerLoad load = worker.loop->load();
    num_requests += load.num_requests - (counts_restorable ? 0 : load.num_restorable);
  }
  return num_requests;
}

void ManagerEngine::OnLoopChange() {
  const MutexLock lock(&mutex_);
  loop_changed_.NotifyAll();
  const bool is_ready = !is_draining_ && HasReadyWorker();
  if (is_ready == was_ready_) return;
  was_ready_ = is_ready;
  hooks_.on_readiness(is_ready);
}

}  // namespace quire
