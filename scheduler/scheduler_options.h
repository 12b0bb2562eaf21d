// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SCHEDULER_OPTIONS_H_
#define QUIRE_SCHEDULER_SCHEDULER_OPTIONS_H_

#include "absl/status/status.h"
#include "scheduler/tenant_shares.h"

namespace quire {

// Which waiting request is served next. See WaitingQueue.
enum class SchedulingPolicy {
  kFcfs,      // Requests in the order of arrival.
  kPriority,  // Requests by Request::priority, then in the order of arrival.
  // The request with the longest cached prefix, then in the order of arrival. No request is overtaken for ever.
  kLongestPrefixFirst,
  kFairShare,  // The tenant that was served least, by weight. Its requests are in the order of arrival.
};

// Returns whether a request waits for all requests that were submitted before it and still wait, and for no others.
inline bool ServesByArrival(SchedulingPolicy policy) {
  return policy == SchedulingPolicy::kFcfs || policy == SchedulingPolicy::kLongestPrefixFirst;
}

// When requests may join the running ones. Static batching exists for comparisons.
enum class Batching {
  kContinuous,  // Requests join in every step.
  kStatic,      // Requests join when the last request of the batch before has ended.
};

struct SchedulerOptions {
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  TenantShares tenants = {};  // Scheduler::SetTenants replaces them.
  Batching batching = Batching::kContinuous;
  // Smallest number of waiting requests per running one at which requests join. Fewer
  // prefills then interrupt decodes.
  double waiting_served_ratio = 0;
  int max_tokens_per_step = 2048;   // Token budget of one plan.
  int max_chunk_tokens = 512;       // Longest slice of one sequence.
  int max_sequences = 256;          // Rows of the worker, which are sequences that run at the same time.
  int max_waiting_requests = 1024;  // Submit refuses requests beyond it.
  int max_context_tokens = 2048;    // Prompt and output tokens of one sequence.
  double watermark = 0.05;          // Share of the pool that admission leaves free, rounded up to whole blocks.
  // The worker keeps its rows after the end of a session, and shows them to the next manager. So the plans say which
  // prefix cache the blocks of a sequence belong to, and which rows have ended.
  bool keeps_rows = false;
  int max_plans_in_flight = 2;  // 1 or 2. With 2, the next plan is made before the last result is known.
};

// The error INVALID_ARGUMENT names the first option that is out of range.
absl::Status CheckSchedulerOptions(const SchedulerOptions& options);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SCHEDULER_OPTIONS_H_
