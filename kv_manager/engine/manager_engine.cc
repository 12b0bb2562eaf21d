#include "kv_manager/engine/manager_engine.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_reason.h"
#include "scheduler/admission.h"

namespace quire {
namespace {

// A question on its way around the step loops. Thread-safe. When the last one has let go of it, it is done.
class QuestionRound {
 public:
  QuestionRound(StepLoop::Question question, std::function<void(const absl::Status&)> done)
      : question_(std::move(question)), done_(std::move(done)) {}
  ~QuestionRound() { done_(status_); }

  void Ask(const StepLoop::View& view) const { question_(view); }
  void Fail(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    status_.Update(status);
  }

 private:
  const StepLoop::Question question_;
  const std::function<void(const absl::Status&)> done_;
  std::mutex mutex_;
  absl::Status status_;  // The first error. Guarded by mutex_.
};

}  // namespace

ManagerEngine::ManagerEngine(const StepLoopOptions& options, Hooks hooks, const Clock* clock, int max_tenant_labels)
    : options_(options),
      hooks_(std::move(hooks)),
      clock_(clock),
      started_us_(clock->NowMicros()),
      registry_(options.scheduler.max_context_tokens),
      tenants_(max_tenant_labels) {}

ManagerEngine::~ManagerEngine() {
  Stop();
}

void ManagerEngine::SetWorkers(const std::vector<std::string>& addresses) {
  std::vector<Worker> leaving;  // Destroyed without the lock: a loop that ends may be waiting for it.
  const std::lock_guard lock(mutex_);
  if (is_draining_) return;
  const auto stays = [&](const Worker& worker) {
    const WorkerLoad load = worker.loop->load();
    return load.is_ready || load.num_requests > 0 ||
           std::find(addresses.begin(), addresses.end(), worker.address) != addresses.end();
  };
  const auto first_leaving = std::stable_partition(workers_.begin(), workers_.end(), stays);
  for (auto it = first_leaving; it != workers_.end(); ++it) retired_.Add(it->loop->status()->stats);
  leaving.assign(std::make_move_iterator(first_leaving), std::make_move_iterator(workers_.end()));
  workers_.erase(first_leaving, workers_.end());
  for (const std::string& address : addresses) AddWorker(address);
}

const ManagerEngine::Worker* ManagerEngine::FindWorker(const std::string& address) const {
  const auto it = std::find_if(workers_.begin(), workers_.end(),
                               [&address](const Worker& worker) { return worker.address == address; });
  return it == workers_.end() ? nullptr : &*it;
}

absl::Status ManagerEngine::NoSuchWorker(const std::string& address) const {
  const std::string known = absl::StrJoin(
      workers_, ", ", [](std::string* out, const Worker& worker) { absl::StrAppend(out, worker.address); });
  return absl::NotFoundError(absl::StrCat("worker: none has the address \"", absl::CHexEscape(address.substr(0, 64)),
                                          "\"; there ", workers_.size() == 1 ? "is " : "are ",
                                          workers_.empty() ? "none" : known));
}

void ManagerEngine::AddWorker(const std::string& address) {
  if (FindWorker(address) != nullptr) return;
  StepLoopOptions options = options_;
  options.address = address;
  options.tenants = &tenants_;
  StepLoop::Hooks hooks{.admit_worker = [this](const WorkerDescription& worker) { return registry_.Admit(worker); },
                        .on_change = [this] { OnLoopChange(); }};
  workers_.push_back(
      {address, std::make_unique<StepLoop>(options, hooks_.make_client(address), std::move(hooks), clock_)});
  workers_.back().loop->Start();
}

absl::Status ManagerEngine::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  // Made before the lock, for which step loops wait; under it only for a worker whose blocks have another size.
  PromptHashes hashes(request.cache_salt, request.prompt);
  if (const int block_size = block_size_; block_size > 0 && !request.bypass_prefix_cache) hashes.Of(block_size);
  const std::lock_guard lock(mutex_);
  if (is_draining_) {
    ++refusals_.draining;
    return WithRetryDelay(WithReason(absl::UnavailableError("the manager is draining"), "DRAINING"), /*delay_ms=*/1000);
  }
  loads_.clear();
  for (const Worker& worker : workers_) loads_.push_back(worker.loop->load(request, &hashes));
  const std::optional<int> chosen =
      ChooseWorker(loads_, {.num_prompt_tokens = static_cast<int>(request.prompt.size()),
                            .num_rows = NumRows(request),
                            .max_blocks = [&](int block_size) { return MaxBlocks(request, block_size); }});
  if (!chosen.has_value()) {
    ++refusals_.no_worker;
    return NoWorker();
  }
  block_size_ = loads_[*chosen].block_size;
  const absl::Status status = workers_[*chosen].loop->Submit(std::move(request), std::move(sink), &hashes);
  if (absl::IsResourceExhausted(status)) ++refusals_.inbox_full;
  return status;
}

absl::Status ManagerEngine::NoWorker() const {
  std::string message = absl::StrCat("none of ", workers_.size(), " workers is ready");
  for (const Worker& worker : workers_) {
    const std::shared_ptr<const WorkerStatus> status = worker.loop->status();
    absl::StrAppend(&message, "; ", worker.address, ": ", status->is_draining ? "drains" : status->last_error);
  }
  return absl::UnavailableError(message);
}

// Where it was placed is not written down: loops that do not know it leave it alone.
void ManagerEngine::CancelSample(RequestId request, int sample_index) {
  const std::lock_guard lock(mutex_);
  for (const Worker& worker : workers_) worker.loop->CancelSample(request, sample_index);
}

void ManagerEngine::Cancel(RequestId request, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  for (const Worker& worker : workers_) worker.loop->Cancel(request, reason);
}

void ManagerEngine::StartDrain() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
  }
  OnLoopChange();
}

bool ManagerEngine::Drain(absl::Duration timeout) {
  StartDrain();
  std::unique_lock lock(mutex_);
  return loop_changed_.wait_for(lock, absl::ToChronoMicroseconds(timeout), [this] { return NumRequests() == 0; });
}

void ManagerEngine::Stop() {
  std::vector<Worker> workers;
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    workers.swap(workers_);
  }
  for (const Worker& worker : workers) worker.loop->Stop();
}

void ManagerEngine::AskAll(StepLoop::Question question, std::function<void(const absl::Status&)> done) {
  const auto round = std::make_shared<QuestionRound>(std::move(question), std::move(done));
  const std::lock_guard lock(mutex_);
  for (const Worker& worker : workers_) {
    round->Fail(worker.loop->Ask([round](const StepLoop::View& view) { round->Ask(view); }));
  }
}

void ManagerEngine::AskWorker(const std::string& address, StepLoop::Question question,
                              std::function<void(const absl::Status&)> done) {
  const auto round = std::make_shared<QuestionRound>(std::move(question), std::move(done));
  const std::lock_guard lock(mutex_);
  const Worker* worker = FindWorker(address);
  if (worker == nullptr) return round->Fail(NoSuchWorker(address));
  round->Fail(worker->loop->Ask([round](const StepLoop::View& view) { round->Ask(view); }));
}

absl::StatusOr<int> ManagerEngine::SetWorkerDraining(const std::string& address, bool is_draining) {
  int num_requests;
  {
    const std::lock_guard lock(mutex_);
    const Worker* worker = FindWorker(address);
    if (worker == nullptr) return NoSuchWorker(address);
    worker->loop->SetDraining(is_draining);
    num_requests = worker->loop->load().num_requests;
  }
  OnLoopChange();
  return num_requests;
}

ManagerStatus ManagerEngine::status() const {
  ManagerStatus status;
  const std::shared_ptr<const ServedModel> model = registry_.model();
  if (model != nullptr) status.model_name = model->name;
  const std::lock_guard lock(mutex_);
  status.now_us = clock_->NowMicros();
  status.uptime_us = status.now_us - started_us_;
  status.is_ready = !is_draining_ && HasReadyWorker();
  status.is_draining = is_draining_;
  status.totals = retired_;
  for (const Worker& worker : workers_) {
    status.workers.push_back(worker.loop->status());
    status.totals.Add(status.workers.back()->stats);
  }
  status.refusals = refusals_;
  status.tenant_labels = tenants_.labels();
  return status;
}

bool ManagerEngine::HasReadyWorker() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    const WorkerLoad load = worker.loop->load();
    return load.is_ready && !load.is_draining;
  });
}

int ManagerEngine::NumRequests() const {
  int num_requests = 0;
  for (const Worker& worker : workers_) num_requests += worker.loop->load().num_requests;
  return num_requests;
}

void ManagerEngine::OnLoopChange() {
  const std::lock_guard lock(mutex_);
  loop_changed_.notify_all();
  const bool is_ready = !is_draining_ && HasReadyWorker();
  if (is_ready == was_ready_) return;
  was_ready_ = is_ready;
  hooks_.on_readiness(is_ready);
}

}  // namespace quire
