// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_PLACEMENT_H_
#define QUIRE_KV_MANAGER_ENGINE_PLACEMENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "base/cache_groups.h"
#include "kv_manager/engine/family_id.h"
#include "kv_manager/engine/wait_forecast.h"
#include "scheduler/request.h"

namespace quire {

// What placement knows about one worker.
struct WorkerLoad {
  bool is_ready = false;                // A session is open, and the worker itself does not drain.
  bool has_tried = false;               // A session was opened, or an attempt has failed.
  bool has_joined = false;              // A session was opened.
  bool may_return = false;              // Lost, and requests still wait for it to return.
  bool is_drained_by_operator = false;  // It gets no new requests.
  GenerationId generation{0};           // Generation of the worker's last session.
  FamilyId family{0};                   // Family of this generation.
  bool is_overdue = false;              // Ready, but has not answered a plan for a long time.
  bool is_on_trial = false;             // It runs one suspect alone, and all other requests wait. See Scheduler.
  CacheGroups groups{/*block_size=*/1};
  int num_blocks = 0;  // Blocks of the pool.
  int num_free_blocks = 0;
  int64_t wanted_blocks = 0;   // Blocks for the requests that were placed there and have not started yet.
  int num_requests = 0;        // Requests that were placed there and have not ended.
  int num_restorable = 0;      // The part of these for which IsRestorable is true.
  int num_waiting = 0;         // The part of these that its scheduler knows and that do not run.
  int num_rows = 0;            // The rows of these: one per sample or beam.
  int max_sequences = 0;       // Rows; 0: unknown.
  int num_cached_tokens = 0;   // Cached tokens of the prompt of the request to be placed.
  WaitForecast forecast = {};  // For a request that is placed there now.
  OverloadedQueues overloaded_queues = nullptr;
  // Under the fair-share policy, the tenant for whose requests the forecast knows what waits before them: the only one
  // that has waiting requests.
  std::optional<std::string> waiting_tenant = std::nullopt;
};

// The request to be placed.
struct PlacementRequest {
  GenerationId generation{0};
  int num_prompt_tokens = 0;
  int num_rows = 1;                                       // One per sample or beam.
  std::function<int64_t(const CacheGroups&)> max_blocks;  // The most blocks that it can ever hold.
  double max_blocks_share = 1;                            // The share of a pool that its tenant may hold.
};

// Returns the number of tokens of the longest sequence for which an empty pool of the worker has room.
int64_t MostTokens(const WorkerLoad& worker);

// Returns whether an empty pool of the worker has room for the request, within the share of its tenant.
bool CanHold(const WorkerLoad& worker, const PlacementRequest& request);

// Returns the index of the worker for the request. Workers that drain and workers of other generations are never
// chosen. Among the workers whose pool can hold the request, those that are ready come first, then those that are
// overdue or on trial, and then those that may return. Among equal ones the worker with the greatest value of
//
//   share of the prompt that it has cached - load
//
// is chosen. The load is the share of its blocks that are taken once all requests that were placed there have started,
// or the share of its rows if that is larger. So a whole prompt has the weight of a whole worker. A tie goes to the
// worker with fewer requests, then to the lower index. When no pool can hold the request, the worker with the largest
// pool is chosen; its scheduler refuses the request and names the numbers. Returns nothing when no worker of the
// generation is ready or may return.
std::optional<int> ChooseWorker(absl::Span<const WorkerLoad> workers, const PlacementRequest& request);

// What a request that moves asks of its next worker, besides what it asks of every worker.
struct TargetNeeds {
  // The blocks that it needs to continue. The worker must have them, and the rows, free now. Empty: it need not.
  std::function<int64_t(const CacheGroups&)> num_blocks = nullptr;
  bool accepts_delay = false;  // The worker may be overdue or on trial.
  // The worker must be idle: it has no waiting requests, and at least kIdlePercent of its blocks are free when it has
  // the request. REQUIRES: num_blocks is not empty.
  bool is_idle = false;
  static constexpr int kIdlePercent = 30;
  // Unless it is 0: the worker may be of another generation of this family.
  FamilyId family{0};
};

// Returns whether the worker can take over the request.
bool CanTakeOver(const WorkerLoad& worker, const PlacementRequest& request, const TargetNeeds& needs);
// Changes `workers` so that only workers that can take over the request count as ready, as workers of its generation,
// and no worker counts as lost. Returns whether there is a ready one. Workers of other generations stay only if no
// worker of its own generation is ready and could hold the request, even an overdue one or one on trial.
bool KeepTargets(const PlacementRequest& request, const TargetNeeds& needs, absl::Span<WorkerLoad> workers);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_PLACEMENT_H_
