// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SIM_REPORT_H_
#define QUIRE_TESTS_SIM_SIM_REPORT_H_

#include <cstddef>
#include <cstdint>

namespace quire {

// Counts of what happened in runs of the simulator. A plain value without pointers.
struct SimReport {
  int64_t scenarios = 0;
  int64_t events = 0;  // Calls into the core that had something to do, and slices planned.
  int64_t requests = 0;
  int64_t refused = 0;
  int64_t moved = 0;       // Requests that came from another worker.
  int64_t rebalanced = 0;  // Moved requests that came from a full worker to an idle one.
  int64_t renumbered = 0;  // Moved requests that came to a worker with other numerics.
  int64_t manager_losses = 0;
  int64_t restored = 0;             // Requests that a worker had kept for another manager.
  int64_t begun_again = 0;          // Requests without a token. Most restart from the prompt.
  int64_t restored_renumbered = 0;  // Restored requests that had got other numerics before.
  int64_t lost_renumbered = 0;  // Requests with other numerics that could not continue, because a worker had lost rows.
  int64_t left_behind = 0;      // Rows that were refused because their requests had got other numerics elsewhere.
  int64_t resubmitted = 0;      // Requests that no worker had kept.
  int64_t displaced = 0;        // Waiting requests that left a full queue for requests of another tenant.
  int64_t cancelled = 0;
  int64_t expired = 0;
  int64_t searches = 0;  // Requests with beams.
  int64_t plans = 0;
  int64_t tokens = 0;  // Emitted tokens.
  int64_t preemptions = 0;
  int64_t swap_outs = 0;
  int64_t forks = 0;
  int64_t copies = 0;
  int64_t evictions = 0;
  int64_t pins = 0;         // Made by requests.
  int64_t failed_pins = 0;  // Wanted by requests, and not made.
  int64_t cached_tokens = 0;
  int64_t scheduled_tokens = 0;
  int64_t recomputed_tokens = 0;
  int64_t losses = 0;
  int64_t drains = 0;               // Workers that drained while they had a session.
  int64_t pool_changes = 0;         // Workers that came back with another pool.
  int64_t failed = 0;               // Requests that failed because of their worker.
  int64_t failed_for_numerics = 0;  // Failed requests that had only workers with other numerics.
  int64_t convicted = 0;            // Requests that made their worker fail.
  int64_t convicted_in_part = 0;    // Convicted requests of which only some samples or beams did.
  int64_t reported = 0;             // Requests of which the worker has ended a sequence.
  int64_t audits = 0;               // Comparisons of block tables.
  int64_t probed_blocks = 0;        // Cached blocks whose slots were compared.
  int64_t walked_blocks = 0;        // The same at the end, with blocks of dead beams and of earlier managers.
  int64_t checks = 0;               // Times that all blocks were counted.
  // The same numbers, only for workers where a request waited after most plans.
  int64_t crowded_scheduled_tokens = 0;
  int64_t crowded_recomputed_tokens = 0;

  void Add(const SimReport& other) {
    const auto* from = reinterpret_cast<const int64_t*>(&other);
    auto* to = reinterpret_cast<int64_t*>(this);
    for (size_t i = 0; i < sizeof(SimReport) / sizeof(int64_t); ++i) to[i] += from[i];
  }
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_REPORT_H_
