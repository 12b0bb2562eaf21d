// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_WAIT_REASON_H_
#define QUIRE_SCHEDULER_WAIT_REASON_H_

#include <cstdint>

namespace quire {

// Why a request waits, as of the last plan.
struct WaitReason {
  enum class Kind {
    kRuns,           // The request does not wait.
    kBehindOthers,   // Requests ahead of this one wait as well.
    kResults,        // The request was preempted, and some of its results are still in flight.
    kRows,           // The worker has too few free rows for the samples or beams of the request.
    kBlocks,         // Too few blocks are free for the whole context of the request.
    kTenantShare,    // The running requests of the tenant hold too much of the pool, see TenantShare.
    kPrefix,         // A running request is about to compute the beginning of the prompt.
    kBatchIsClosed,  // Static batching, or too few requests wait for the waiting_served_ratio.
    kNextPlan,       // Nothing prevents the request from entering in the next plan.
  };
  Kind kind = Kind::kRuns;
  int num_ahead = 0;             // Waiting requests that are served before this one.
  int num_rows = 0;              // Rows that the request runs in.
  int num_free_rows = 0;         // Rows of the worker that are free.
  int num_blocks = 0;            // Free blocks that the request takes when it enters.
  int num_free_blocks = 0;       // Blocks of the pool that are free.
  int num_watermark_blocks = 0;  // Free blocks that admission keeps for running requests to grow into.
  int num_cached_tokens = 0;     // Tokens of the prompt that are in the prefix cache.
  // While kind is kTenantShare: what counts against the share of the tenant. Blocks that several requests share count
  // for each of them, and so do blocks of the prefix cache.
  int64_t num_counted_blocks = 0;  // The blocks of the request.
  int64_t num_tenant_blocks = 0;   // The blocks that the running requests of the tenant hold, and may hold.
  int64_t max_tenant_blocks = 0;
  bool is_swapped = false;  // The blocks of the request are in the host tier.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_WAIT_REASON_H_
