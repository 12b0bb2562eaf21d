// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/placement_audit.h"

#include <algorithm>

#include "tests/sim/violation.h"

namespace quire {

absl::StatusOr<std::optional<int>> ChooseWorkerAudited(const std::vector<WorkerLoad>& loads,
                                                       const PlacementRequest& request) {
  const auto is_candidate = [&](const WorkerLoad& load) {
    return load.generation == request.generation && !load.is_drained_by_operator && (load.is_ready || load.may_return);
  };
  const std::optional<int> chosen = ChooseWorker(loads, request);
  if (chosen.has_value() != std::any_of(loads.begin(), loads.end(), is_candidate)) {
    return Violation("a worker was chosen: ", chosen.has_value());
  }
  if (!chosen.has_value()) return chosen;
  const auto holds = [&](const WorkerLoad& load) {
    return request.num_rows <= load.max_sequences && request.max_blocks(load.groups) <= load.num_blocks;
  };
  const auto worth = [&](const WorkerLoad& load) {
    const double free = static_cast<double>(load.num_free_blocks - load.wanted_blocks) / load.num_blocks;
    const double free_rows = 1.0 - static_cast<double>(load.num_rows) / load.max_sequences;
    return static_cast<double>(load.num_cached_tokens) / request.num_prompt_tokens + std::min(free, free_rows);
  };
  const auto is_delayed = [](const WorkerLoad& load) { return load.is_overdue || load.is_on_trial; };
  const WorkerLoad& ours = loads[*chosen];
  if (!is_candidate(ours)) return Violation("worker ", *chosen, " was chosen and takes no requests");
  // It can hold the request and the chosen one cannot, or it is ready and the chosen one is not, or the chosen one is
  // overdue or on trial and it is not, or it has the greater worth.
  for (const WorkerLoad& other : loads) {
    if (!is_candidate(other)) continue;
    const bool is_better = holds(other) != holds(ours)             ? holds(other)
                           : !holds(ours)                          ? false
                           : other.is_ready != ours.is_ready       ? other.is_ready
                           : is_delayed(other) != is_delayed(ours) ? is_delayed(ours)
                                                                   : worth(other) > worth(ours) + 1e-6;
    if (is_better) return Violation("worker ", *chosen, " was chosen, another is better");
  }
  return chosen;
}

}  // namespace quire
