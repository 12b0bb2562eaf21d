// SPDX-License-Identifier: Apache-2.0

#include "worker/worker_stats.h"

#include <algorithm>

namespace quire {

void WorkerStats::RecordStep(const StepCounts& counts) {
  const MutexLock lock(&mutex_);
  ++totals_.steps;
  totals_.prefill_tokens += counts.prefill_tokens;
  totals_.decode_tokens += counts.decode_tokens;
  totals_.sampled_tokens += counts.sampled_tokens;
  totals_.copied_blocks += counts.copied_blocks;
  totals_.swapped_out_blocks += counts.swapped_out_blocks;
  totals_.swapped_in_blocks += counts.swapped_in_blocks;
  totals_.rows_in_use = counts.rows;
  totals_.step_seconds += counts.seconds;
  const auto bucket = std::lower_bound(kStepSecondsBounds.begin(), kStepSecondsBounds.end(), counts.seconds);
  ++totals_.step_seconds_counts[bucket - kStepSecondsBounds.begin()];
}

void WorkerStats::RecordExchanges(const ExchangeCounts& of_steps, const ExchangeCounts& of_plans) {
  const MutexLock lock(&mutex_);
  totals_.step_exchanges.count += of_steps.count;
  totals_.step_exchanges.seconds += of_steps.seconds;
  totals_.plan_exchanges.count += of_plans.count;
  totals_.plan_exchanges.seconds += of_plans.seconds;
}

void WorkerStats::RecordFailure() {
  const MutexLock lock(&mutex_);
  ++totals_.failed_steps;
}

void WorkerStats::RecordStaleTerm() {
  const MutexLock lock(&mutex_);
  ++totals_.stale_terms;
}

void WorkerStats::SetSession(uint64_t epoch, bool is_open) {
  const MutexLock lock(&mutex_);
  if (is_open) ++totals_.sessions;
  totals_.epoch = epoch;
  totals_.is_open = is_open;
  totals_.rows_in_use = 0;
}

void WorkerStats::SetRefused(bool is_refused) {
  const MutexLock lock(&mutex_);
  totals_.is_refused = is_refused;
}

WorkerStatsSnapshot WorkerStats::Snapshot() const {
  const MutexLock lock(&mutex_);
  return totals_;
}

}  // namespace quire
