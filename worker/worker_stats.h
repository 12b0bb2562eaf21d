// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_WORKER_STATS_H_
#define QUIRE_WORKER_WORKER_STATS_H_

#include <array>
#include <cstdint>

#include "base/mutex.h"

namespace quire {

// What one step did, as counts.
struct StepCounts {
  int64_t prefill_tokens = 0;  // Tokens in slices of several tokens.
  int64_t decode_tokens = 0;   // Tokens in slices of one token.
  int64_t sampled_tokens = 0;
  int64_t copied_blocks = 0;
  int64_t swapped_out_blocks = 0;
  int64_t swapped_in_blocks = 0;
  int rows = 0;  // The number of slices.
  double seconds = 0;
};

// Exchanges of a rank with the others of its group.
struct ExchangeCounts {
  int64_t count = 0;
  double seconds = 0;
};

// The upper bounds of the step duration's buckets, in seconds. One more bucket takes all longer steps.
inline constexpr std::array<double, 14> kStepSecondsBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                              0.1,    0.25,  0.5,    1,     2.5,  5,     10};

// The totals since the worker started, and the current state.
struct WorkerStatsSnapshot {
  int64_t steps = 0;
  int64_t failed_steps = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t sampled_tokens = 0;
  int64_t copied_blocks = 0;
  int64_t swapped_out_blocks = 0;
  int64_t swapped_in_blocks = 0;
  double step_seconds = 0;
  std::array<int64_t, kStepSecondsBounds.size() + 1> step_seconds_counts{};  // Per bucket, not cumulative.
  int64_t sessions = 0;
  int64_t stale_terms = 0;        // Sessions that were refused because their manager is no longer the leader.
  uint64_t epoch = 0;             // The epoch of the last session.
  bool is_open = false;           // A session is being served.
  bool is_refused = false;        // The manager will not use this worker.
  int rows_in_use = 0;            // Rows with a slice in the last step, or 0 without a session.
  ExchangeCounts step_exchanges;  // Within steps.
  ExchangeCounts plan_exchanges;  // Before steps, in which the ranks agree on the plan.
};

// Counts what steps did. Each call takes a lock once. Thread-safe.
class WorkerStats {
 public:
  void RecordStep(const StepCounts& counts);
  void RecordFailure();
  void RecordExchanges(const ExchangeCounts& of_steps, const ExchangeCounts& of_plans);
  void RecordStaleTerm();
  void SetSession(uint64_t epoch, bool is_open);
  void SetRefused(bool is_refused);

  // Returns all values as they were at one moment.
  WorkerStatsSnapshot Snapshot() const;

 private:
  mutable Mutex mutex_;
  WorkerStatsSnapshot totals_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_WORKER_WORKER_STATS_H_
