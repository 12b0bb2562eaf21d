#ifndef QUIRE_KV_MANAGER_ENGINE_WORKER_STATUS_H_
#define QUIRE_KV_MANAGER_ENGINE_WORKER_STATUS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/engine/histogram.h"
#include "kv_manager/engine/tenant_labels.h"
#include "scheduler/scheduler.h"

namespace quire {

inline constexpr double kSecondsBounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                                            1,     2,     5,     10,   20,   50,   100, 200, 500};
inline constexpr double kPlanSecondsBounds[] = {5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                                                1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1};
inline constexpr double kStepTokensBounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
inline constexpr double kRequestTokensBounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                                  1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};

// What a step loop has counted since it started. Every number only grows.
struct StepLoopStats {
  // By FinishReason; what the caller ended counts as kStopToken after a stop string, else as kCancelled.
  std::array<int64_t, 4> finished = {};
  int64_t failed = 0;               // Ended by OnFailed after they were queued.
  int64_t refused_never_fits = 0;   // Refused by the scheduler: the pool or the model's context is too small.
  int64_t refused_queue_full = 0;   // Refused by the scheduler: too many requests wait.
  int64_t refused_worker_lost = 0;  // Arrived when the worker had gone for good.
  int64_t prompt_tokens = 0;        // Of requests that the scheduler took.
  int64_t started_tokens = 0;       // Of these, of requests that have run.
  int64_t cached_tokens = 0;        // Of these, found in the prefix cache when the request first ran.
  int64_t generated_tokens = 0;
  int64_t cow_copies = 0;
  int64_t forks = 0;          // Sequences that began as a copy of another.
  int64_t evictions = 0;      // Blocks that the prefix cache gave up.
  int64_t worker_losses = 0;  // Sessions that ended, but for those of workers that had drained.
  int64_t interruptions = 0;  // Requests that ran when a session ended, and waited to be recomputed.
  int64_t preemptions = 0;    // Because blocks were short.
  int64_t swap_outs = 0;      // Preemptions that moved blocks to the host tier.
  int64_t swapped_out_blocks = 0;
  int64_t swapped_in_blocks = 0;
  int64_t recomputed_tokens = 0;
  Histogram queue_seconds{kSecondsBounds};        // Arrival to the plan of the first step.
  Histogram first_token_seconds{kSecondsBounds};  // Arrival to first token.
  Histogram inter_token_seconds{kSecondsBounds};  // Between two tokens of a sample.
  // Of requests that finished: the whole, from arrival to end, and from the first plan to the first token to the end.
  Histogram request_seconds{kSecondsBounds};
  Histogram prefill_seconds{kSecondsBounds};
  Histogram decode_seconds{kSecondsBounds};
  Histogram request_prompt_tokens{kRequestTokensBounds};
  Histogram request_generated_tokens{kRequestTokensBounds};  // All samples of a request together.
  Histogram step_seconds{kSecondsBounds};                    // Plan sent to result received.
  Histogram worker_step_seconds{kSecondsBounds};             // The worker's own part of it.
  Histogram plan_seconds{kPlanSecondsBounds};                // Making one plan.
  Histogram step_tokens{kStepTokensBounds};                  // Tokens per plan.
  std::vector<TenantUsage> tenants{1};                       // By slot of TenantLabels; those beyond have had nothing.

  void Add(const StepLoopStats& other);
};

// One consistent look at a worker and its step loop.
struct WorkerStatus {
  std::string address;
  bool is_ready = false;     // A session is open.
  bool is_draining = false;  // It gets no new requests: by the operator, or by its own wish.
  std::string last_error;    // Why it is not ready, or gets no new requests.
  uint64_t epoch = 0;
  uint64_t steps = 0;  // Committed in this session.
  int num_plans_in_flight = 0;
  // Clock of the step loop: the last result; and the last result or the plan sent into an idle session. Or when this
  // session began; 0: none has.
  int64_t last_step_us = 0;
  int64_t progress_us = 0;
  int block_size = 0;
  BlockCounts blocks;
  int waiting_requests = 0;
  int running_requests = 0;
  int swapped_requests = 0;  // Of the waiting ones.
  std::string device;
  std::string numerics_fingerprint;
  StepLoopStats stats;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_WORKER_STATUS_H_
