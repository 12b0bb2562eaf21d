#ifndef QUIRE_SCHEDULER_SCHEDULER_OPTIONS_H_
#define QUIRE_SCHEDULER_SCHEDULER_OPTIONS_H_

#include "absl/status/status.h"

namespace quire {

// In which order requests are served: by arrival, or by Request::priority and then by arrival.
enum class SchedulingPolicy { kFcfs, kPriority };

struct SchedulerOptions {
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  int max_tokens_per_step = 2048;   // Token budget of one plan.
  int max_chunk_tokens = 512;       // Longest slice of one sequence.
  int max_sequences = 256;          // Rows of the worker: sequences that run at the same time.
  int max_waiting_requests = 1024;  // Submit refuses beyond.
  int max_context_tokens = 2048;    // Prompt and output of one sequence.
  double watermark = 0.05;          // Share of the pool that admission leaves free, rounded up to whole blocks.
  int max_plans_in_flight = 1;      // 1, or 2: the next plan is made before the last result is known.
};

// INVALID_ARGUMENT names the first option out of range.
absl::Status CheckSchedulerOptions(const SchedulerOptions& options);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SCHEDULER_OPTIONS_H_
