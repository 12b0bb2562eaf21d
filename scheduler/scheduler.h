#ifndef QUIRE_SCHEDULER_SCHEDULER_H_
#define QUIRE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "scheduler/block_manager.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

enum class SchedulingPolicy { kFcfs, kPriority };

struct SchedulerOptions {
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  int max_tokens_per_step = 2048;   // Token budget of one plan.
  int max_chunk_tokens = 512;       // Longest slice of one sequence.
  int max_sequences = 256;          // Rows of the worker: sequences that run at the same time.
  int max_waiting_requests = 1024;  // Submit refuses beyond.
  int max_context_tokens = 2048;    // Prompt and output of one sequence.
  double watermark = 0.01;          // Share of the pool that admission leaves free.
  int max_plans_in_flight = 1;      // 2: the next plan is made before the last result is known.
};

// One token that a sequence has emitted.
struct Emission {
  RequestId request;
  int sample_index;
  int position;  // Of the token in the sequence, the prompt included.
  ScoredToken token;
};

struct PromptLogprobs {
  RequestId request;
  int first_position;  // Of the first entry; entries are consecutive.
  std::vector<ScoredToken> tokens;
};

struct Finished {
  RequestId request;
  int sample_index;
  FinishReason reason;
};

// What one committed step means for the callers. Emissions of one sequence are in order of position.
struct StepOutput {
  std::vector<Emission> emissions;
  std::vector<PromptLogprobs> prompt_logprobs;
  std::vector<RequestId> started;  // Requests that ran for the first time in this step.
  std::vector<Finished> finished;
};

struct SchedulerCounts {
  int waiting = 0;
  int running = 0;
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;
};

// Continuous batching over the block pool of one worker. Pure: no clock, no randomness, no I/O, no threads; equal calls
// give equal plans. Owned by the step-loop thread.
//
// There is no prefill or decode phase. A sequence has num_computed_tokens catching up with its number of tokens; each
// plan gives running sequences their next slice first, then admits waiting requests while the token budget, the rows
// and the blocks for their whole context last. When blocks run out the cheapest running request is preempted: its
// blocks are freed and it waits, ahead of newcomers, to be recomputed from its tokens.
class Scheduler {
 public:
  // `blocks` is borrowed and outlives the scheduler.
  Scheduler(const SchedulerOptions& options, BlockManager* blocks);

  // Queues the request. FAILED_PRECONDITION when it can never fit, RESOURCE_EXHAUSTED when the queue is full; a refused
  // request has changed nothing.
  absl::Status Submit(Request request);

  // The request holds no blocks from the next plan on, and emits nothing more. Returns false when it is not known (any
  // more).
  bool Cancel(RequestId request);

  // The next step. A plan without slices means that nothing can run now; it is not sent and must not be committed.
  // Requests past their deadline at `now_us` finish here and are reported through the next TakeFinished().
  // REQUIRES: fewer than max_plans_in_flight plans are neither committed nor abandoned.
  StepPlan Plan(int64_t now_us);

  // Takes the worker's answer to the oldest plan in flight.
  StepOutput Commit(const StepResult& result);

  // The worker is lost: all plans in flight are void, its rows and blocks are gone, and every running sequence waits to
  // be recomputed from its tokens.
  void AbandonAll();

  SchedulerCounts counts() const;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SCHEDULER_H_
