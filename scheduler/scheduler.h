#ifndef QUIRE_SCHEDULER_SCHEDULER_H_
#define QUIRE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "scheduler/beam_search.h"
#include "scheduler/block_manager.h"
#include "scheduler/free_rows.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/sequence_group.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"
#include "scheduler/waiting_queue.h"

namespace quire {

struct SchedulerCounts {
  int waiting = 0;  // Requests, the preempted ones included.
  int running = 0;
  int swapped = 0;  // Of the waiting ones: their blocks are in the host tier.
  int64_t preemptions = 0;
  int64_t swap_outs = 0;          // Of those, the ones that moved blocks to the host tier.
  int64_t forks = 0;              // Sequences that began as a copy of another.
  int64_t scheduled_tokens = 0;   // Sum over all plans.
  int64_t recomputed_tokens = 0;  // Of those, the ones that an earlier plan had computed before.
  int64_t cached_tokens = 0;      // Found computed in the prefix cache, by requests that entered.
};

// Why a request waits, as of the last plan.
struct WaitReason {
  enum class Kind {
    kRuns,           // It does not wait.
    kBehindOthers,   // Requests ahead of it wait as well.
    kResults,        // It was preempted, and results of it are on their way.
    kRows,           // The worker has too few free rows for its samples or beams.
    kBlocks,         // Too few blocks are free for its whole context.
    kPrefix,         // A running request is about to compute the beginning of its prompt.
    kBatchIsClosed,  // Static batching, or too few wait for the waiting_served_ratio.
    kNextPlan,       // Nothing is in its way.
  };
  Kind kind = Kind::kRuns;
  int num_ahead = 0;
  int num_rows = 0;  // It runs in, and are free.
  int num_free_rows = 0;
  // It takes from the free ones to enter; are free; and of these, are kept for running requests to grow.
  int num_blocks = 0;
  int num_free_blocks = 0;
  int num_watermark_blocks = 0;
  int num_cached_tokens = 0;  // Of its prompt.
  bool is_swapped = false;    // Its blocks are in the host tier.
};

// Continuous batching over the block pool of one worker. Pure: no clock, no randomness, no I/O, no threads; equal calls
// give equal plans. Owned by the step-loop thread.
//
// There is no prefill or decode phase. A sequence has num_computed_tokens catching up with its number of tokens; each
// plan gives running sequences their next slice first, then admits waiting requests while the token budget, the rows
// and the blocks for their whole context last. A prompt that does not end within the budget leaves half of it to those
// behind, so that short prompts pass long ones. What the prefix cache holds of them is not computed again; a request
// whose prefix a running one is about to compute waits for that. When blocks run out the cheapest running request is
// preempted: its blocks move to the host tier, or are freed if there is no room, and it waits, ahead of newcomers, to
// be swapped in or recomputed from its tokens. Nothing is admitted in a step that preempted, and no more than
// kMaxStartTokens let one plan tell the worker about.
//
// Samples of one prompt share its sequence until the slice that ends the prompt: there they fork, and each draws its
// first token from the logits of that slice. Beams go on when the candidates of all of them are known: dead ones are
// freed first, then the survivors fork. Whatever was shared is shared again after a preemption, in whole blocks.
//
// With two plans in flight the second assumes that every sequence goes on. Ends that are known in advance (max_tokens)
// waste nothing; after a stop token one row is wasted and its result dropped. Beams run in every second plan.
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

  // The request holds no blocks any more, and emits nothing more, not even a Finished. Returns false when
  // it is not known (any more).
  bool Cancel(RequestId request);

  // The same for one of its samples, once it has emitted a token; the request goes with the last of them. Returns false
  // for a sample that is not known, has emitted nothing or is a beam.
  bool CancelSample(RequestId request, int sample_index);

  // Plans have at most so many tokens from here on, if that is less than max_tokens_per_step; but always room for
  // kMinPromptTokens beside a token of each running sequence.
  void SetTokenBudget(int max_tokens) { token_budget_ = max_tokens; }
  static constexpr int kMinPromptTokens = 32;

  // The next step. An empty plan means that nothing can run now; it is not sent and must not be committed.
  // REQUIRES: fewer than max_plans_in_flight plans are neither committed nor abandoned.
  StepPlan Plan();

  // Whether `result` answers the oldest plan in flight, slice by slice. The error says what is wrong with the worker.
  absl::Status CheckResult(const StepResult& result) const;

  // Takes the worker's answer to the oldest plan in flight. REQUIRES: CheckResult(result) is OK.
  StepOutput Commit(StepResult result);

  // The worker is lost: all plans in flight are void, its rows and blocks are gone, and every running request waits to
  // be recomputed from its tokens. The next plan is step 1 of a new session.
  void AbandonAll();

  SchedulerCounts counts() const;

  // Why the request does not run. Nothing when it is not known.
  std::optional<WaitReason> ExplainWait(RequestId request);

  int num_plans_in_flight() const { return static_cast<int>(plans_in_flight_.size()); }

  // For those who look on; groups are valid until the next non-const call.

  // Null when it is not known.
  const SequenceGroup* FindGroup(RequestId request) const { return Find(request); }
  // All: those that run, in the order of service, then those that wait.
  void ForEachGroup(absl::FunctionRef<void(const SequenceGroup&)> call) const;

  // Who runs in a row and has had a slice there; no sequence: nobody.
  struct Occupant {
    RequestId request{0};
    const Sequence* sequence = nullptr;
  };
  Occupant OccupantOf(RowId row) const;
  // The sequence's next slice tells the worker its whole table, if it still runs in the row.
  void SendTableAgain(RowId row, SequenceId sequence);

 private:
  // Walks over running sequences fetch so many ahead.
  static constexpr size_t kPrefetchDistance = 8;

  // Who a row belongs to: spares a committed slice two lookups.
  struct RowOwner {
    SequenceId id{0};
    SequenceGroup* group = nullptr;
    Sequence* sequence = nullptr;
  };
  struct SliceInFlight {
    RequestId request;
    SequenceId sequence;
    RowId row;
    int first_position;
    int num_tokens;
    bool sample;
    bool has_candidates;  // Of a beam: it samples and the worker draws nothing.
    int num_prompt_logprobs;
  };
  struct PlanInFlight {
    StepId step;
    std::vector<SliceInFlight> slices;
  };
  // A plan in the making.
  struct Draft {
    struct Slice {
      SequenceGroup* group;
      Sequence* sequence;
      int num_tokens;
    };

    StepPlan plan;
    std::vector<Slice> slices;  // Their slots are writable.
    int budget = 0;             // Tokens left.
    int64_t num_start_tokens = 0;
    bool has_preempted = false;
  };

  // How a waiting request may enter now.
  enum class Door { kOpen, kNoRoom, kWaitsForPrefix };
  struct Entry {
    Door door = Door::kNoRoom;
    int num_cached_tokens = 0;  // With which it enters.
  };

  // The phases of Plan.
  void PlanRunning(Draft* draft);
  bool MayAdmit() const;
  void PlanWaiting(Draft* draft);
  StepPlan Complete(Draft draft);

  // What is left of the budget goes to chunks that were cut short for those behind them.
  void GrowChunks(Draft* draft);
  // Tokens of the next slice of a sequence that may have `budget`.
  int SliceTokens(const Sequence& sequence, int budget) const;

  // Makes the slots of the slice writable. False if blocks are short.
  bool TryReserve(Sequence* sequence, int num_tokens, Draft* draft);
  // The same, preempting as long as blocks are short. Returns false when the sequence gets no slice: its own group was
  // the cheapest, or nobody else is left to preempt.
  bool Reserve(const SequenceGroup& group, Sequence* sequence, int num_tokens, Draft* draft);
  void Preempt(SequenceGroup* group, Draft* draft);

  int NumCachedTokens(const SequenceGroup& group) const;
  Entry FindEntry(SequenceGroup* group) const;
  int NumBlocksToEnter(const SequenceGroup& group) const;
  void Enter(SequenceGroup* group, const Entry& entry, Draft* draft);
  // These two give the sequences of the group their tables and say how far they are computed.
  void SwapIn(SequenceGroup* group, Draft* draft);
  void StartAgain(SequenceGroup* group, int num_cached_tokens, Draft* draft);

  SequenceSlice PlanSlice(SequenceGroup* group, Sequence* sequence, int num_tokens, PlanInFlight* in_flight);
  void ForkSamples(SequenceGroup* group, const Sequence& before, StepPlan* plan, PlanInFlight* in_flight);
  void PlanBeamRows(StepPlan* plan);
  void Publish(Sequence* sequence);

  // Begins to fetch what committing the slices after number `slice` will read.
  void PrefetchOwners(const PlanInFlight& plan, size_t slice) const;
  void CommitSlice(const SliceInFlight& slice, SliceResult result, StepOutput* output);
  void EmitPromptLogprobs(const SliceInFlight& slice, std::vector<ScoredToken> logprobs, SequenceGroup* group,
                          StepOutput* output);
  // The candidates of all beams are there: which live on, and what is certain by now.
  void AdvanceBeams(SequenceGroup* group, StepOutput* output);
  void ReplaceBeams(SequenceGroup* group, const std::vector<BeamSearch::Extension>& extensions);
  void EmitHypotheses(const SequenceGroup& group, StepOutput* output) const;
  void EmitBeam(const SequenceGroup& group, int rank, const std::vector<TokenId>& tokens,
                const std::vector<float>& logprobs, StepOutput* output) const;

  // The sequence leaves its group; the group goes with the last one.
  void RemoveSequence(SequenceGroup* group, Sequence* sequence);
  // A running group gives up rows and blocks and waits; with `keeps_blocks` they are in the host tier.
  void Suspend(SequenceGroup* group, bool keeps_blocks);
  void ReleaseRows(SequenceGroup* group);
  void ReleaseRow(const Sequence& sequence) { row_owners_[Value(sequence.row())] = {}; }
  void Remove(SequenceGroup* group);                                            // Destroys it.
  std::vector<SequenceGroup*>::iterator RunningPlace(const ServiceRank& rank);  // Where such a group is, or would be.
  SequenceGroup* Find(RequestId request) const;
  SequenceId NewSequenceId();

  const SchedulerOptions options_;
  int token_budget_;
  BlockManager* const blocks_;
  const int watermark_blocks_;

  absl::flat_hash_map<RequestId, std::unique_ptr<SequenceGroup>> groups_;
  std::vector<SequenceGroup*> running_;  // By rank.
  WaitingQueue waiting_;                 // With running_: every group once.
  bool is_batch_open_ = true;            // Under static batching.
  FreeRows free_rows_;
  std::vector<RowOwner> row_owners_;          // By row; of running sequences that have had a slice.
  std::deque<PlanInFlight> plans_in_flight_;  // Oldest first.

  StepId next_step_{1};
  uint64_t num_submitted_ = 0;
  int num_beam_searches_ = 0;   // Of the groups.
  uint64_t num_sequences_ = 0;  // Ever.
  SchedulerCounts counts_;      // All but waiting and running.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SCHEDULER_H_
