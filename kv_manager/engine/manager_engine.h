#ifndef QUIRE_KV_MANAGER_ENGINE_MANAGER_ENGINE_H_
#define QUIRE_KV_MANAGER_ENGINE_MANAGER_ENGINE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "kv_manager/engine/engine.h"
#include "kv_manager/engine/model_registry.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/engine/step_loop.h"
#include "kv_manager/engine/worker_status.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/request.h"

namespace quire {

// Requests that Submit has refused, by reason.
struct SubmitRefusals {
  int64_t no_worker = 0;
  int64_t draining = 0;
  int64_t inbox_full = 0;
};

// One look at the whole manager: each worker's part is consistent in itself.
struct ManagerStatus {
  int64_t now_us = 0;  // Clock of the step loops.
  int64_t uptime_us = 0;
  std::string model_name;  // Empty until a worker joined.
  bool is_ready = false;   // A worker is ready and does not drain, and the manager is not draining either.
  bool is_draining = false;
  // In the order in which they came.
  std::vector<std::shared_ptr<const WorkerStatus>> workers;
  StepLoopStats totals;  // Of these workers and of those that are gone for good.
  SubmitRefusals refusals;
  std::vector<std::string> tenant_labels = {
      TenantLabels::kOthers};  // By slot; at least as many as the totals have tenants.
};

// The Engine over any number of workers: a step loop for each, and requests placed among them. Thread-safe.
class ManagerEngine : public Engine {
 public:
  struct Hooks {
    std::function<std::unique_ptr<WorkerClient>(const std::string& address)> make_client;
    // The manager has become ready or stopped being so. One call at a time, on any thread; must not call back.
    std::function<void(bool is_ready)> on_readiness;
  };

  static constexpr int kMaxTenantLabels = 32;

  // `options.address` and `options.tenants` are ignored. `clock` is borrowed. No more than `max_tenant_labels` tenants
  // are told apart in the status.
  ManagerEngine(const StepLoopOptions& options, Hooks hooks, const Clock* clock,
                int max_tenant_labels = kMaxTenantLabels);
  ~ManagerEngine() override;  // Stops.

  // These are the workers from now on: starts a step loop for each new address, and ends those of missing ones once
  // they are neither connected nor have requests. Does nothing while draining.
  void SetWorkers(const std::vector<std::string>& addresses);

  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override;
  void Cancel(RequestId request, FinishReason reason) override;
  void CancelSample(RequestId request, int sample_index) override;
  std::shared_ptr<const ServedModel> model() const override { return registry_.model(); }

  // Refuses new requests from now on.
  void StartDrain();
  // The same, and waits for those that run. False when some still ran at the timeout.
  bool Drain(absl::Duration timeout);
  // Ends the step loops; what still runs fails with UNAVAILABLE.
  void Stop();

  // Calls `question` once for each step loop, on its thread: calls overlap, and one that waits for another would hold
  // up steps. Afterwards `done`, on the last one's thread or within this call, when all that the calls have written is
  // seen. `done` gets the first error of a loop that cannot be asked.
  void AskAll(StepLoop::Question question, std::function<void(const absl::Status&)> done);
  // The same for the loop of one worker. NOT_FOUND when there is none of this address.
  void AskWorker(const std::string& address, StepLoop::Question question,
                 std::function<void(const absl::Status&)> done);

  // From now on the worker gets no new requests, or gets them again. Returns how many it has; NOT_FOUND as above.
  absl::StatusOr<int> SetWorkerDraining(const std::string& address, bool is_draining);

  ManagerStatus status() const;

 private:
  struct Worker {
    std::string address;
    std::unique_ptr<StepLoop> loop;
  };

  void AddWorker(const std::string& address);
  const Worker* FindWorker(const std::string& address) const;
  absl::Status NoSuchWorker(const std::string& address) const;
  absl::Status NoWorker() const;
  bool HasReadyWorker() const;
  int NumRequests() const;
  void OnLoopChange();

  const StepLoopOptions options_;
  const Hooks hooks_;
  const Clock* const clock_;
  const int64_t started_us_;
  ModelRegistry registry_;
  TenantLabels tenants_;
  std::atomic<int> block_size_ = 0;  // Of the worker that got the last request; 0 before the first.

  mutable std::mutex mutex_;  // Guards the rest; the loops' own locks are taken under it.
  std::condition_variable loop_changed_;
  std::vector<Worker> workers_;
  std::vector<WorkerLoad> loads_;  // Scratch of Submit.
  StepLoopStats retired_;          // Of workers that are gone for good.
  SubmitRefusals refusals_;
  bool is_draining_ = false;
  bool was_ready_ = false;  // As last told to on_readiness.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MANAGER_ENGINE_H_
