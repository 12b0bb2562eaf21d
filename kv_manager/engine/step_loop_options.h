// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_OPTIONS_H_
#define QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/engine/family_id.h"
#include "kv_manager/engine/moving_request.h"
#include "kv_manager/engine/restore_request.h"
#include "kv_manager/engine/tenant_labels.h"
#include "kv_manager/engine/tenant_quotas.h"
#include "kv_manager/engine/wait_forecast.h"
#include "kv_manager/worker_link/worker_description.h"
#include "kv_manager/worker_link/worker_link.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_options.h"

namespace quire {

struct StepLoopOptions {
  std::string address;         // The address of the worker, for logs and status.
  SchedulerOptions scheduler;  // Narrowed to what the worker can do once it has described itself.
  WorkerLinkOptions link;
  bool has_prefix_cache = true;
  bool reads_generation_config = true;            // The models that workers serve have them.
  int64_t max_worker_bytes = int64_t{256} << 20;  // See CheckMemoryFor.
  double max_pinned_share = 0.25;                 // The share of the pool that pins may hold.
  // The requests of a lost worker move to another one after this time, but at the latest when the grace ends.
  int64_t failover_after_us = 0;
  // Says whether requests of a lost worker move to workers of another generation of its family if no worker of its own
  // generation is ready.
  bool changes_numerics = false;
  bool rebalances = false;               // Waiting requests move to idle workers, see Rebalancer.
  int64_t worker_grace_us = 30'000'000;  // Requests wait this long for a lost worker before they fail.
  int64_t overdue_us = 2'000'000;        // See WorkerLoad::is_overdue.
  // Time after its start in which a manager waits for workers that may have requests of an earlier one. 0: it adopts
  // nothing.
  int64_t adopt_window_us = 0;
  int64_t max_step_us = 0;  // The target for the duration of a step, see StepBudget. 0: there is none.
  WaitLimits wait_limits;
  int max_inbox_requests = 1024;    // Requests that are submitted and not yet seen by the loop.
  int max_questions = 64;           // Questions that are asked and not yet answered.
  TenantLabels* tenants = nullptr;  // Borrowed. Null: all requests count under one label.
  // Borrowed. Its shares replace the shares of `scheduler`. Null: these do not change.
  const TenantQuotas* quotas = nullptr;
};

// Returns whether the next manager can continue the request when this one stops: the workers keep its record, and a
// manager adopts what they have.
inline bool IsRestorable(const Request& request, const StepLoopOptions& options) {
  return request.record != nullptr && options.adopt_window_us > 0;
}

// What a step loop asks its owner. The loop's thread calls these functions.
struct StepLoopHooks {
  // Decides whether the worker may serve here, and in which generation. An error becomes the worker's last_error.
  std::function<absl::StatusOr<GenerationId>(const WorkerDescription&)> admit_worker;
  // The family of a generation that admit_worker has returned. Empty: there are no families.
  std::function<FamilyId(GenerationId)> family_of = nullptr;
  // The numerics fingerprints of ready workers of the other generations of this family, separated by commas. "": there
  // are none. It is empty if and only if family_of is.
  std::function<std::string(FamilyId family, GenerationId own)> other_numerics = nullptr;
  // Something in status() or load() has changed that others wait for: the worker has become ready or stopped being
  // ready, or the last request has ended.
  std::function<void()> on_change;
  // Empty: requests never move to another worker.
  MoveRequestHook move_request = nullptr;
  FindMovableHook find_movable = nullptr;  // Empty if and only if move_request is.
  // Empty: no request of an earlier manager is restored.
  RestoreRequestHook restore_request = nullptr;
  // Makes the block manager of a worker's pool. Empty: a plain PagedBlockManager. The simulator puts one here that
  // checks every call.
  std::function<std::unique_ptr<PagedBlockManager>(const PagedBlockManagerOptions&)> make_blocks = nullptr;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_OPTIONS_H_
