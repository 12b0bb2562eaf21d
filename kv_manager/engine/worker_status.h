// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_WORKER_STATUS_H_
#define QUIRE_KV_MANAGER_ENGINE_WORKER_STATUS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/engine/histogram.h"
#include "kv_manager/engine/tenant_labels.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/request.h"
#include "scheduler/scheduler.h"

namespace quire {

inline constexpr double kSecondsBounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                                            1,     2,     5,     10,   20,   50,   100, 200, 500};
inline constexpr double kPlanSecondsBounds[] = {5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                                                1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1};
inline constexpr double kStepTokensBounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
inline constexpr double kRequestTokensBounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                                  1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
inline constexpr double kOutputsBounds[] = {1, 2, 5, 10, 20, 50, 100, 200};

// The counters of a step loop since it started. Every number only grows.
struct StepLoopStats {
  // Requests that have finished, by FinishReason. A request that its caller has ended counts as kStopToken when the
  // caller has found a stop string, and else as kCancelled.
  std::array<int64_t, 4> finished = {};
  int64_t failed = 0;               // Requests that the scheduler had accepted and that failed with their worker.
  int64_t refused_never_fits = 0;   // Requests that exceed the pool or the model's context.
  int64_t refused_queue_full = 0;   // Requests that came when too many others waited.
  int64_t refused_worker_lost = 0;  // Requests that came when the worker was lost for longer than the grace.
  int64_t displaced = 0;            // Requests that the scheduler had accepted and that left a full queue for others.
  int64_t refused_overloaded = 0;   // Requests that would have waited too long, or ended too late.
  int64_t prompt_tokens = 0;        // Prompt tokens of the requests that the scheduler accepted.
  int64_t started_tokens = 0;       // The part of prompt_tokens whose requests have started to run.
  int64_t cached_tokens = 0;        // The part of started_tokens that was in the prefix cache at that time.
  int64_t generated_tokens = 0;
  int64_t cow_copies = 0;
  int64_t forks = 0;                // Sequences that began as a copy of another.
  int64_t evictions = 0;            // Blocks that were evicted from the prefix cache.
  int64_t request_pins = 0;         // Prefixes that requests have pinned.
  int64_t failed_request_pins = 0;  // Those that requests could not pin.
  int64_t worker_losses = 0;        // Sessions that ended, except for workers that had drained.
  int64_t interruptions = 0;        // Requests that were running when a session ended, and must be recomputed.
  int64_t restored_requests = 0;    // Requests of another manager, which the worker still had.
  // Requests that continued on another worker, because this one was lost or drained, or could no longer serve them.
  int64_t moved_requests = 0;
  int64_t rebalanced_requests = 0;  // The part of these that moved because this worker was full.
  int64_t numerics_changes = 0;     // Requests that continue here after a worker with other numerics.
  int64_t preemptions = 0;          // Requests that were preempted because there were too few blocks.
  int64_t swap_outs = 0;            // Preemptions that moved blocks to the host tier.
  int64_t swapped_out_blocks = 0;
  int64_t swapped_in_blocks = 0;
  int64_t recomputed_tokens = 0;
  Histogram queue_seconds{kSecondsBounds};        // From arrival to the first plan.
  Histogram first_token_seconds{kSecondsBounds};  // From arrival to the first token.
  Histogram inter_token_seconds{kSecondsBounds};  // Between two tokens of a sample.
  // Requests that have finished: from arrival to end, from the first plan to the first token, and from the first token
  // to the end.
  Histogram request_seconds{kSecondsBounds};
  Histogram prefill_seconds{kSecondsBounds};
  Histogram decode_seconds{kSecondsBounds};
  Histogram request_prompt_tokens{kRequestTokensBounds};
  Histogram request_generated_tokens{kRequestTokensBounds};  // All samples of a request are counted together.
  Histogram request_longest_output{kRequestTokensBounds};    // The tokens of its longest sample or hypothesis.
  Histogram request_max_tokens{kRequestTokensBounds};        // What it asked for.
  Histogram request_outputs{kOutputsBounds};                 // Samples, or the hypotheses that return.
  Histogram request_computed_tokens{kRequestTokensBounds};   // The part of its prompt that no cache had.
  Histogram running_seconds{kSecondsBounds};                 // From the first plan to the end of the request.
  Histogram token_seconds{kSecondsBounds};                   // The mean of inter_token_seconds over a request.
  Histogram step_seconds{kSecondsBounds};                    // From a plan to its result.
  Histogram worker_step_seconds{kSecondsBounds};             // The worker's part of a step.
  Histogram plan_seconds{kPlanSecondsBounds};                // The time to make one plan.
  // The manager's part of a step: it makes and sends the plan, commits the result, and hands the tokens to the streams.
  Histogram manager_step_seconds{kPlanSecondsBounds};
  Histogram manager_step_cpu_seconds{kPlanSecondsBounds};  // The CPU time of the loop's thread in it.
  Histogram step_tokens{kStepTokensBounds};                // Tokens per plan.
  std::vector<TenantUsage> tenants{1};                     // By slot of TenantLabels; zero beyond the end.

  void Add(const StepLoopStats& other);
};

// The state of a worker and its step loop at one moment.
struct WorkerStatus {
  std::string address;
  bool is_ready = false;     // A session is open.
  bool is_refused = false;   // The manager refuses the worker, or the worker refuses the session. See last_error.
  bool is_draining = false;  // It gets no new requests: it is drained by the operator, by the worker itself, or both.
  std::string last_error;    // The reason why it is not ready or gets no new requests.
  uint64_t epoch = 0;
  uint64_t steps = 0;  // Steps that were committed in this session.
  int num_plans_in_flight = 0;
  // Both in time of the step loop's clock. The last result, or the start of this session; 0: there was no session.
  int64_t last_step_us = 0;
  // The last result, or the last plan that was sent when no other was in flight; 0: there was none.
  int64_t progress_us = 0;
  int block_size = 0;
  BlockCounts blocks;
  int waiting_requests = 0;
  int running_requests = 0;
  int swapped_requests = 0;  // The part of waiting_requests whose blocks are in the host tier.
  // Says how long a request that comes now will wait, judging by the last seconds; it is 0 if the request will not
  // wait, or if that is not known. Under the policies priority and fair share it is the longest wait.
  int64_t expected_wait_us = 0;
  std::string device;
  std::string numerics_fingerprint;
  std::string model_name;
  GenerationId generation{0};  // 0: it has never joined.
  RankStates ranks;
  StepLoopStats stats;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_WORKER_STATUS_H_
