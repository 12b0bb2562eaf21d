#ifndef QUIRE_SCHEDULER_SCHEDULER_OPTIONS_H_
#define QUIRE_SCHEDULER_SCHEDULER_OPTIONS_H_

#include <map>
#include <string>

#include "absl/status/status.h"

namespace quire {

// Which of the waiting requests is next. See WaitingQueue.
enum class SchedulingPolicy {
  kFcfs,                // By arrival.
  kPriority,            // By Request::priority, then by arrival.
  kLongestPrefixFirst,  // The one with the longest cached prefix, then by arrival; nobody is passed for ever.
  kFairShare,           // The tenant that was served least, by weight; its requests by arrival.
};

// When requests may join. Static batching is there to be compared with.
enum class Batching {
  kContinuous,  // In every step.
  kStatic,      // When the batch before has ended altogether.
};

struct SchedulerOptions {
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  std::map<std::string, double> tenant_weights;  // Above 0; tenants that are not listed have 1.
  Batching batching = Batching::kContinuous;
  // Requests join only when the waiting ones are at least so many per running one: fewer prefills interrupt decodes.
  double waiting_served_ratio = 0;
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
