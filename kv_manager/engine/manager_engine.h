// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_MANAGER_ENGINE_H_
#define QUIRE_KV_MANAGER_ENGINE_MANAGER_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "kv_manager/engine/engine.h"
#include "kv_manager/engine/loop_view.h"
#include "kv_manager/engine/model_registry.h"
#include "kv_manager/engine/moving_request.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/engine/step_loop_options.h"
#include "kv_manager/engine/tenant_labels.h"
#include "kv_manager/engine/tenant_quotas.h"
#include "kv_manager/engine/worker_status.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/request.h"

namespace quire {

class StepLoop;

// The numbers of requests that Submit has refused, by reason.
struct SubmitRefusals {
  int64_t no_worker = 0;
  int64_t draining = 0;
  int64_t inbox_full = 0;
  int64_t tenant_limit = 0;  // See TenantQuotas.
  int64_t overloaded = 0;    // On every worker that could take them, they would have waited too long.
};

// The state of the whole manager. The part of each worker is consistent in itself.
struct ManagerStatus {
  int64_t now_us = 0;  // Time of the step loops' clock.
  int64_t uptime_us = 0;
  std::string model_name;      // Model of new requests. Empty until a worker has joined.
  GenerationId generation{0};  // Generation of new requests; 0 until a worker has joined.
  bool is_ready = false;       // A worker is ready and does not drain, and the manager does not drain either.
  bool is_draining = false;
  // In the order in which the workers were added.
  std::vector<std::shared_ptr<const WorkerStatus>> workers;
  StepLoopStats totals;  // The sum over these workers and those that are gone for good.
  SubmitRefusals refusals;
  // Differences between the workers of a generation and the workers for new requests, by Value() of the generation.
  std::map<uint64_t, std::string> differences;
  std::vector<std::string> warnings;  // Sentences about settings that leave the service open to others.
  // The index is the slot. There is a label for each tenant of the totals.
  std::vector<std::string> tenant_labels = {TenantLabels::kOthers};
};

// The Engine over any number of workers. It runs a step loop for each worker and places every request on one of them.
// Thread-safe.
class ManagerEngine : public Engine {
 public:
  struct Hooks {
    std::function<std::unique_ptr<WorkerClient>(const std::string& address)> make_client;
    // The manager has become ready or stopped being ready. On any thread, one call at a time. Must not call the
    // engine.
    std::function<void(bool is_ready)> on_readiness;
    // See StepLoopHooks. Called by the threads of the loops. Of the functions of the engine, it may call only Cancel.
    // May be empty.
    RestoreRequestHook restore_request = nullptr;
  };

  static constexpr int kMaxTenantLabels = 32;

  // `options.address`, `options.tenants` and `options.quotas` are ignored. The shares of `options.scheduler` hold until
  // SetTenants is called. `clock` is borrowed. The status tells at most
  // `max_tenant_labels` tenants apart, and repeats the `warnings`.
  ManagerEngine(const StepLoopOptions& options, Hooks hooks, const Clock* clock,
                int max_tenant_labels = kMaxTenantLabels, std::vector<std::string> warnings = {});
  ~ManagerEngine() override;  // Stops.

  // Sets the addresses of the workers. Starts a step loop for each new address. Ends the loop of a missing address when
  // its worker is not connected and has no requests; other missing ones stay until a later call. Does nothing while
  // draining.
  void SetWorkers(const std::vector<std::string>& addresses);

  // Replaces the limits of the tenants. They hold for all later requests, and the shares also for waiting ones.
  void SetTenants(TenantTable table) { quotas_.SetTable(std::move(table)); }

  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override;
  void Cancel(RequestId request, FinishReason reason) override;
  void CancelSample(RequestId request, int sample_index) override;
  std::shared_ptr<const ServedModel> model() const override;
  int64_t LongestSequence(GenerationId generation) const override;
  // The models of all generations that have workers, the newest first.
  std::vector<std::shared_ptr<const ServedModel>> models() const { return registry_.models(); }

  // Returns whether a worker may still have requests of an earlier manager, of which this one does not know yet: within
  // options.adopt_window_us from the start, until all workers have opened their first session or could not be reached.
  // The start is the last call of BeginToLead.
  bool IsRestoring() const;
  // This manager begins to lead now, in milliseconds since 1970: the epochs of its sessions are at least this number.
  // Called before SetWorkers.
  void BeginToLead(uint64_t unix_ms);

  // Refuses new requests from now on.
  void StartDrain();
  // Does the same and waits for all requests to end, or only for those that are not restorable (see IsRestorable).
  // Returns false when some had not ended at the timeout.
  bool Drain(absl::Duration timeout, bool awaits_restorable = true);
  // Ends the step loops. Requests that have not ended fail with UNAVAILABLE, see StepLoop::Stop.
  void Stop();

  // Calls `question` once for each step loop, on the thread of the loop. These calls can overlap; they must not wait
  // for each other, because that would hold up steps. Then calls `done` once, on the thread of the last loop or within
  // this call. `done` sees everything that the questions have written, and gets the first error of a loop that cannot
  // be asked.
  void AskAll(LoopQuestion question, std::function<void(const absl::Status&)> done);
  // The same for the loop of one worker. NOT_FOUND when no worker has this address, UNAVAILABLE after Stop().
  void AskWorker(const std::string& address, LoopQuestion question, std::function<void(const absl::Status&)> done);

  // From now on the worker gets no new requests, or gets them again. With `migrates`, the requests that it has move to
  // other workers as far as these have room. Returns how many requests it has. Errors as for AskWorker.
  absl::StatusOr<int> SetWorkerDraining(const std::string& address, bool is_draining, bool migrates = false);

  ManagerStatus status() const;

 private:
  struct Worker {
    std::string address;
    std::unique_ptr<StepLoop> loop;
  };

  absl::Status Place(Request request, std::shared_ptr<RequestSink> sink, PromptHashes* hashes) QUIRE_REQUIRES(mutex_);
  void AddWorker(const std::string& address) QUIRE_REQUIRES(mutex_);
  bool HasWorker(const std::string& address) const QUIRE_REQUIRES(mutex_);
  // NOT_FOUND when there is no such worker, UNAVAILABLE after Stop().
  absl::StatusOr<StepLoop*> FindLoop(const std::string& address) const QUIRE_REQUIRES(mutex_);
  // The index of the worker for the request, as ChooseWorker says. Where it would wait too long, ChooseWorker is asked
  // for another ready worker that can hold it. When there is none, the error is that of the worker that came first.
  absl::StatusOr<int> ChooseFor(const Request& request, PromptHashes* hashes) QUIRE_REQUIRES(mutex_);
  // Gives a request of the worker `from` to another one, see MoveRequestHook.
  bool MoveRequest(const std::string& from, const MoveWish& wish, TakeRequest take) QUIRE_EXCLUDES(mutex_);
  // Looks for requests of the worker `from` that MoveRequest can give to another one, see FindMovableHook.
  size_t FindMovable(const std::string& from, absl::Span<const MoveWish> wishes) const QUIRE_EXCLUDES(mutex_);
  // See StepLoopHooks::other_numerics.
  std::string OtherNumerics(FamilyId family, GenerationId own) const QUIRE_EXCLUDES(mutex_);
  // The hook of the loops.
  absl::StatusOr<RequestRestored> RestoreRequest(const RequestToRestore& request);
  absl::Status NoWorkerError() const QUIRE_REQUIRES(mutex_);
  // See Engine::model().
  std::shared_ptr<const ServedModel> ServedNow() const QUIRE_REQUIRES(mutex_);
  // The status without `differences`.
  ManagerStatus StatusOfNow() const QUIRE_EXCLUDES(mutex_);
  bool HasReadyWorker() const QUIRE_REQUIRES(mutex_);
  int NumRequests(bool counts_restorable) const QUIRE_REQUIRES(mutex_);
  void OnLoopChange() QUIRE_EXCLUDES(mutex_);

  const StepLoopOptions options_;
  const Hooks hooks_;
  const Clock* const clock_;
  const int64_t started_us_;
  std::atomic<int64_t> adopts_until_us_;  // See IsRestoring.
  const std::vector<std::string> warnings_;
  ModelRegistry registry_;
  TenantLabels tenants_;
  TenantQuotas quotas_;              // Its tickets are in the loops, which end before it.
  std::atomic<int> block_size_ = 0;  // The block size of the worker that got the last request; 0 before the first.

  mutable Mutex mutex_;  // The mutexes of the loops are taken while this one is held.
  CondVar loop_changed_;
  uint64_t first_epoch_ QUIRE_GUARDED_BY(mutex_);  // First epoch of sessions with added workers.
  std::vector<Worker> workers_ QUIRE_GUARDED_BY(mutex_);
  std::vector<WorkerLoad> loads_ QUIRE_GUARDED_BY(mutex_);  // Memory that each call of Submit reuses.
  StepLoopStats retired_ QUIRE_GUARDED_BY(mutex_);          // The stats of workers that are gone for good.
  // Removed workers that have had a session with this manager. What they still have belongs to requests of this
  // manager, which have moved or ended. So nothing is adopted from them when they are added again.
  absl::flat_hash_set<std::string> removed_ QUIRE_GUARDED_BY(mutex_);
  SubmitRefusals refusals_ QUIRE_GUARDED_BY(mutex_);
  std::vector<int64_t> tenant_refusals_ QUIRE_GUARDED_BY(mutex_);  // The refusals by Submit, by slot of tenants_.
  bool is_draining_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_stopped_ QUIRE_GUARDED_BY(mutex_) = false;
  bool was_ready_ QUIRE_GUARDED_BY(mutex_) = false;  // Last value told to on_readiness.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_MANAGER_ENGINE_H_
