#ifndef QUIRE_SCHEDULER_SCHEDULER_H_
#define QUIRE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "scheduler/block_manager.h"
#include "scheduler/free_rows.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/sequence_group.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"

namespace quire {

struct SchedulerCounts {
  int waiting = 0;  // Requests, the preempted ones included.
  int running = 0;
  int64_t preemptions = 0;
  int64_t scheduled_tokens = 0;   // Sum over all plans.
  int64_t recomputed_tokens = 0;  // Of those, the ones that an earlier plan had computed before.
};

// Continuous batching over the block pool of one worker. Pure: no clock, no randomness, no I/O, no threads; equal calls
// give equal plans. Owned by the step-loop thread.
//
// There is no prefill or decode phase. A sequence has num_computed_tokens catching up with its number of tokens; each
// plan gives running sequences their next slice first, then admits waiting requests while the token budget, the rows
// and the blocks for their whole context last. When blocks run out the cheapest running request is preempted: its
// blocks are freed and it waits, ahead of newcomers, to be recomputed from its tokens. Nothing is admitted in a step
// that preempted, and no more than kMaxStartTokens let one plan tell the worker about.
//
// With two plans in flight the second assumes that every sequence goes on. Ends that are known in advance (max_tokens)
// waste nothing; after a stop token one row is wasted and its result dropped.
class Scheduler {
 public:
  // `blocks` is borrowed and outlives the scheduler. REQUIRES: CheckSchedulerOptions(options) is OK.
  Scheduler(const SchedulerOptions& options, BlockManager* blocks);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues the request. INVALID_ARGUMENT when a field is out of range or prompt and max_tokens exceed the context,
  // FAILED_PRECONDITION when they exceed the pool, RESOURCE_EXHAUSTED when the queue is full, ALREADY_EXISTS when the
  // id is in use. A refused request has changed nothing.
  absl::Status Submit(Request request);

  // The request holds no blocks from the next plan on, and emits nothing more, not even a Finished. Returns false when
  // it is not known (any more).
  bool Cancel(RequestId request);

  // The next step. A plan without slices means that nothing can run now; it is not sent and must not be committed.
  // Requests with deadline_us < now_us finish here and are reported through TakeFinished().
  // REQUIRES: fewer than max_plans_in_flight plans are neither committed nor abandoned.
  StepPlan Plan(int64_t now_us);

  // What finished in Plan since the last call.
  std::vector<Finished> TakeFinished() { return std::exchange(finished_, {}); }

  // Whether `result` answers the oldest plan in flight, slice by slice. The error says what is wrong with the worker.
  absl::Status CheckResult(const StepResult& result) const;

  // Takes the worker's answer to the oldest plan in flight. REQUIRES: CheckResult(result) is OK.
  StepOutput Commit(StepResult result);

  // The worker is lost: all plans in flight are void, its rows and blocks are gone, and every running request waits to
  // be recomputed from its tokens. The next plan is step 1 of a new session.
  void AbandonAll();

  SchedulerCounts counts() const;
  int num_plans_in_flight() const { return static_cast<int>(plans_in_flight_.size()); }

 private:
  struct SliceInFlight {
    RequestId request;
    SequenceId sequence;
    int first_position;
    int num_tokens;
    bool sample;
    int num_prompt_logprobs;
  };
  struct PlanInFlight {
    StepId step;
    std::vector<SliceInFlight> slices;
  };
  struct Draft;  // A plan in the making.

  // The phases of Plan.
  void FinishExpired(int64_t now_us);
  void PlanRunning(Draft* draft);
  void PlanWaiting(Draft* draft);
  StepPlan Complete(Draft draft);

  // Makes the slots of the slice writable, preempting as long as blocks are short. Returns false when the sequence gets
  // no slice: its own group was the cheapest, or nobody else is left to preempt.
  bool Reserve(const SequenceGroup& group, const Sequence& sequence, int num_tokens, Draft* draft);
  void Preempt(SequenceGroup* group, Draft* draft);
  bool CanEnter(const SequenceGroup& group) const;
  void Enter(SequenceGroup* group, Draft* draft);
  SequenceSlice PlanSlice(const SequenceGroup& group, Sequence* sequence, int num_tokens, PlanInFlight* in_flight);

  void CommitSlice(const SliceInFlight& slice, SliceResult result, StepOutput* output);
  void EmitPromptLogprobs(const SliceInFlight& slice, std::vector<ScoredToken> logprobs, SequenceGroup* group,
                          StepOutput* output);

  void ReleaseMemory(SequenceGroup* group);  // Rows and blocks.
  void Remove(SequenceGroup* group);         // Destroys it.
  SequenceGroup* Find(RequestId request) const;

  const SchedulerOptions options_;
  BlockManager* const blocks_;
  const int watermark_blocks_;

  absl::flat_hash_map<RequestId, std::unique_ptr<SequenceGroup>> groups_;
  std::vector<SequenceGroup*> running_;                                      // By rank.
  absl::btree_map<ServiceRank, SequenceGroup*> waiting_;                     // With running_: every group once.
  absl::btree_map<std::pair<int64_t, uint64_t>, SequenceGroup*> deadlines_;  // By deadline and submission.
  FreeRows free_rows_;
  std::deque<PlanInFlight> plans_in_flight_;  // Oldest first.
  std::vector<Finished> finished_;

  StepId next_step_{1};
  uint64_t num_submitted_ = 0;
  int64_t preemptions_ = 0;
  int64_t scheduled_tokens_ = 0;
  int64_t recomputed_tokens_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SCHEDULER_H_
