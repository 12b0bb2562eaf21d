// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/placement.h"

#include <algorithm>
#include <cmath>

#include "scheduler/tenant_shares.h"

namespace quire {
namespace {

double Load(const WorkerLoad& worker) {
  const double blocks = 1.0 - static_cast<double>(worker.num_free_blocks - worker.wanted_blocks) / worker.num_blocks;
  const double rows = worker.max_sequences == 0 ? 0 : static_cast<double>(worker.num_rows) / worker.max_sequences;
  return std::max(blocks, rows);
}

bool MayGetRequests(const WorkerLoad& worker) {
  return !worker.is_drained_by_operator && (worker.is_ready || worker.may_return);
}

// Returns whether the requests of this worker make no progress now.
bool IsDelayed(const WorkerLoad& worker) {
  return worker.is_overdue || worker.is_on_trial;
}

bool IsBetter(const WorkerLoad& a, const WorkerLoad& b, const PlacementRequest& request) {
  const bool a_holds = CanHold(a, request);
  const bool b_holds = CanHold(b, request);
  if (a_holds != b_holds) return a_holds;
  if (!a_holds) return MostTokens(a) > MostTokens(b);
  if (a.is_ready != b.is_ready) return a.is_ready;
  if (IsDelayed(a) != IsDelayed(b)) return IsDelayed(b);
  const auto worth = [&](const WorkerLoad& worker) {
    return static_cast<double>(worker.num_cached_tokens) / std::max(request.num_prompt_tokens, 1) - Load(worker);
  };
  const double difference = worth(a) - worth(b);
  if (std::abs(difference) > 1e-9) return difference > 0;
  return a.num_requests < b.num_requests;
}

bool CanServe(const WorkerLoad& worker, const PlacementRequest& request, FamilyId family) {
  if (worker.generation == request.generation) return true;
  return family != FamilyId{0} && worker.family == family;
}

// Returns whether the request finds its rows and blocks free now.
bool HasRoom(const WorkerLoad& worker, int num_rows, int64_t num_blocks) {
  if (worker.max_sequences != 0 && worker.num_rows + num_rows > worker.max_sequences) return false;
  return num_blocks <= worker.num_free_blocks - worker.wanted_blocks;
}

// Returns whether the worker stays far from full when it has the request.
bool IsIdle(const WorkerLoad& worker, int64_t num_blocks) {
  const int64_t num_free = worker.num_free_blocks - worker.wanted_blocks - num_blocks;
  return worker.num_waiting == 0 && 100 * num_free >= int64_t{TargetNeeds::kIdlePercent} * worker.num_blocks;
}

}  // namespace

int64_t MostTokens(const WorkerLoad& worker) {
  // Group 0 alone takes a block for each block_size tokens, and a longer sequence takes no fewer blocks of any group.
  int64_t least = 0, most = int64_t{worker.num_blocks} * worker.groups.block_size();
  while (least < most) {
    const int64_t middle = (least + most + 1) / 2;
    if (worker.groups.NumBlocks(middle) <= worker.num_blocks) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

bool CanHold(const WorkerLoad& worker, const PlacementRequest& request) {
  if (worker.max_sequences != 0 && request.num_rows > worker.max_sequences) return false;
  return request.max_blocks(worker.groups) <= BlocksOfShare(request.max_blocks_share, worker.num_blocks);
}

std::optional<int> ChooseWorker(absl::Span<const WorkerLoad> workers, const PlacementRequest& request) {
  std::optional<int> best;
  for (int i = 0; i < static_cast<int>(workers.size()); ++i) {
    if (workers[i].generation != request.generation || !MayGetRequests(workers[i])) continue;
    if (!best.has_value() || IsBetter(workers[i], workers[*best], request)) best = i;
  }
  return best;
}

bool CanTakeOver(const WorkerLoad& worker, const PlacementRequest& request, const TargetNeeds& needs) {
  if (!worker.is_ready || worker.is_drained_by_operator || !CanServe(worker, request, needs.family)) return false;
  if (IsDelayed(worker) && !needs.accepts_delay) return false;
  if (!CanHold(worker, request)) return false;
  if (needs.num_blocks == nullptr) return true;
  const int64_t num_blocks = needs.num_blocks(worker.groups);
  return HasRoom(worker, request.num_rows, num_blocks) && (!needs.is_idle || IsIdle(worker, num_blocks));
}

bool KeepTargets(const PlacementRequest& request, const TargetNeeds& needs, absl::Span<WorkerLoad> workers) {
  const bool has_own = std::any_of(workers.begin(), workers.end(), [&](const WorkerLoad& worker) {
    return CanTakeOver(worker, request, {.accepts_delay = true});
  });
  TargetNeeds kept = needs;
  if (has_own) kept.family = FamilyId{0};
  bool is_found = false;
  for (WorkerLoad& worker : workers) {
    worker.may_return = false;
    worker.is_ready = CanTakeOver(worker, request, kept);
    if (worker.is_ready) worker.generation = request.generation;
    is_found |= worker.is_ready;
  }
  return is_found;
}

}  // namespace quire
