// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_WORKER_POOL_H_
#define QUIRE_KV_MANAGER_ENGINE_WORKER_POOL_H_

#include <memory>
#include <optional>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/step_loop_options.h"
#include "kv_manager/worker_link/worker_description.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_budget.h"

namespace quire {

// The block manager of a worker's pool and the scheduler that plans on it. It outlives sessions: a worker that comes
// back with the same pool continues with the requests that are queued here. Owned by the step-loop thread.
class WorkerPool {
 public:
  WorkerPool(const WorkerDescription& worker, const StepLoopOptions& options, const StepLoopHooks& hooks);

  Scheduler* scheduler() { return &scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  PagedBlockManager* blocks() { return blocks_.get(); }
  const PagedBlockManager& blocks() const { return *blocks_; }
  // Returns null without a prefix cache.
  const std::shared_ptr<PrefixIndex>& index() const { return index_; }

  // Takes the shares of the tenants from `quotas` from here on. Takes no lock while they have not changed.
  void UpdateTenants(const TenantQuotas& quotas);

  // Makes the pins of a request whose prompt is computed, within the limits of its tenant. Returns how many tokens each
  // of them holds: 0 if it is beyond a limit. [pins.pins]
  std::vector<int> MakePins(const RequestPins& pins, int64_t now_us);

  // The worker has computed a step of `num_tokens` tokens in this time: the size of later steps follows.
  void OnStep(int num_tokens, int64_t duration_us);

 private:
  const std::shared_ptr<PrefixIndex> index_;
  const std::unique_ptr<PagedBlockManager> blocks_;
  Scheduler scheduler_;
  std::shared_ptr<const TenantShares> tenants_;  // The shares of scheduler_. Null: the shares of the options.
  std::optional<StepBudget> step_budget_;        // Set with options.max_step_us.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_WORKER_POOL_H_
