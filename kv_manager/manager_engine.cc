#include "kv_manager/manager_engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace quire {

ManagerEngine::ManagerEngine(const StepLoopOptions& options, Hooks hooks, const Clock* clock)
    : options_(options),
      hooks_(std::move(hooks)),
      clock_(clock),
      started_us_(clock->NowMicros()),
      registry_(options.scheduler.max_context_tokens) {}

ManagerEngine::~ManagerEngine() {
  Stop();
}

void ManagerEngine::AddWorker(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (is_draining_) return;
  if (std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end()) return;
  StepLoopOptions options = options_;
  options.address = address;
  StepLoop::Hooks hooks{.admit_worker = [this](const WorkerDescription& worker) { return registry_.Admit(worker); },
                        .on_change = [this] { OnLoopChange(); }};
  addresses_.push_back(address);
  loops_.push_back(std::make_unique<StepLoop>(options, hooks_.make_client(address), std::move(hooks), clock_));
  loops_.back()->Start();
}

absl::Status ManagerEngine::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  const std::lock_guard lock(mutex_);
  if (is_draining_) {
    ++refusals_.draining;
    return absl::UnavailableError("the manager is draining");
  }
  loads_.clear();
  for (const auto& loop : loops_) loads_.push_back(loop->load());
  const std::optional<int> worker = ChooseWorker(loads_);
  if (!worker.has_value()) {
    ++refusals_.no_worker;
    return absl::UnavailableError(absl::StrCat("none of ", loops_.size(), " workers is ready"));
  }
  const absl::Status status = loops_[*worker]->Submit(std::move(request), std::move(sink));
  if (absl::IsResourceExhausted(status)) ++refusals_.inbox_full;
  return status;
}

// Where it was placed is not written down: loops that do not know it leave it alone.
void ManagerEngine::Cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  for (const auto& loop : loops_) loop->Cancel(request);
}

bool ManagerEngine::Drain(absl::Duration timeout) {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
  }
  OnLoopChange();
  std::unique_lock lock(mutex_);
  return loop_changed_.wait_for(lock, absl::ToChronoMicroseconds(timeout), [this] { return NumRequests() == 0; });
}

void ManagerEngine::Stop() {
  std::vector<std::unique_ptr<StepLoop>> loops;
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    loops.swap(loops_);
    addresses_.clear();
  }
  for (const auto& loop : loops) loop->Stop();
}

ManagerStatus ManagerEngine::status() const {
  ManagerStatus status;
  const std::shared_ptr<const ServedModel> model = registry_.model();
  if (model != nullptr) status.model_name = model->name;
  const std::lock_guard lock(mutex_);
  status.uptime_us = clock_->NowMicros() - started_us_;
  status.is_ready = !is_draining_ && HasReadyWorker();
  for (const auto& loop : loops_) status.workers.push_back(loop->status());
  status.refusals = refusals_;
  return status;
}

bool ManagerEngine::HasReadyWorker() const {
  return std::any_of(loops_.begin(), loops_.end(), [](const auto& loop) { return loop->load().is_ready; });
}

int ManagerEngine::NumRequests() const {
  int num_requests = 0;
  for (const auto& loop : loops_) num_requests += loop->load().num_requests;
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
