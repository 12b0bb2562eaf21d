// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SCHEDULER_H_
#define QUIRE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/admission_control.h"
#include "scheduler/block_manager.h"
#include "scheduler/moved_request.h"
#include "scheduler/plan_draft.h"
#include "scheduler/plans_in_flight.h"
#include "scheduler/recorded_rows.h"
#include "scheduler/request.h"
#include "scheduler/restored_request.h"
#include "scheduler/running_set.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/sequence_forks.h"
#include "scheduler/sequence_group.h"
#include "scheduler/step_limit.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"
#include "scheduler/suspects.h"
#include "scheduler/tenant_blocks.h"
#include "scheduler/tenant_shares.h"
#include "scheduler/wait_reason.h"
#include "scheduler/waiting_queue.h"

namespace quire {

struct SchedulerCounts {
  int waiting = 0;                // Requests that wait, including preempted ones.
  int running = 0;                // Requests that run.
  int swapped = 0;                // Waiting requests whose blocks are in the host tier.
  int free_rows = 0;              // Rows that no request has.
  int suspects = 0;               // Requests that may be what makes the worker fail, see Suspicion.
  int64_t waiting_tokens = 0;     // The work of the waiting requests, see WaitingQueue::num_tokens.
  int64_t entered = 0;            // Number of times that a waiting request started or resumed.
  int64_t entered_tokens = 0;     // The work of these.
  int64_t preemptions = 0;        // Number of preemptions of requests.
  int64_t swap_outs = 0;          // Preemptions that moved blocks to the host tier.
  int64_t forks = 0;              // Sequences that began as a copy of another one.
  int64_t scheduled_tokens = 0;   // Tokens in the slices of all plans.
  int64_t recomputed_tokens = 0;  // Scheduled tokens that an earlier plan had computed already.
  int64_t cached_tokens = 0;      // Tokens that entering requests took from the prefix cache.
};

// A waiting request that has left a full queue for a request of another tenant.
struct Displaced {
  RequestId request;
  std::string tenant;
};

// Continuous batching over the block pool of one worker. The scheduler is pure: it has no clock, randomness, I/O or
// threads, and equal calls give equal plans. Owned by the step-loop thread.
//
// There are no separate phases for prefill and decode. The num_computed_tokens of a sequence catch up with its number
// of tokens. Each plan gives the running sequences their next slices first. Then it admits waiting requests while the
// token budget, the rows and the blocks for their whole context last (see AdmissionControl). A prompt that does not end
// within the budget leaves half of the budget to the sequences behind it, so short prompts overtake long ones. Tokens
// that are in the prefix cache are not computed again, and a request whose prefix a running one is about to compute
// waits for that. When blocks run out, the cheapest running request is preempted: its blocks move to the host tier, or
// are freed when the host tier has no room. The request then waits, ahead of newcomers, until it is swapped in or
// recomputed from its tokens. A plan that preempts admits nothing, and a plan starts sequences of at most
// kMaxStartTokens tokens.
//
// A request whose tenant holds its share of the pool waits, and requests of other tenants overtake it (see
// TenantShares). When blocks run out, requests of tenants that hold more than their share are preempted first.
//
// The samples of a prompt share one sequence until the slice that ends the prompt. There they fork, and each draws its
// first token from the logits of that slice. The beams of a search advance together when the candidates of all of them
// are known (see SequenceForks). What sequences shared before a preemption they share again afterwards, in whole
// blocks.
//
// Tokens that were computed before, for a request that was preempted or has moved here, take at most 70 % of a plan, as
// long as the other running requests, or requests that enter behind it, need the rest. If this rule would give the
// first waiting request nothing, it gets what the running requests leave, since nobody may overtake it.
//
// When workers are lost repeatedly, the requests that were in flight become suspects (see Suspicion). As long as there
// are suspects, one of them runs at a time, beginning with the newest, and all other requests wait. It runs alone until
// it is cleared or convicted. So p requests that make every worker fail end the service of the others for at most
// kLossesToSuspect + p * kLoneLossesToConvict losses, however many requests run beside them.
//
// When the worker reports that a sequence has failed, its request fails, and the session and all other requests
// continue. What the request has computed leaves the prefix cache, unless only its guide has failed. When the worker
// has postponed a draw, a later plan repeats it.
//
// With two plans in flight, the second one is made on the assumption that every sequence continues. An end that is
// known in advance (max_tokens) wastes nothing. After a stop token, one row of the second plan is wasted and its result
// is dropped. Beams run in every second plan.
class Scheduler {
 public:
  // `blocks` is borrowed and outlives the scheduler. REQUIRES: CheckSchedulerOptions(options) is OK.
  Scheduler(const SchedulerOptions& options, BlockManager* blocks);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues the request. INVALID_ARGUMENT when a field is out of range or prompt and max_tokens exceed the context,
  // FAILED_PRECONDITION when they exceed the pool or the tenant's share of it, RESOURCE_EXHAUSTED when the queue is
  // full, ALREADY_EXISTS when the id is in use. A refused request has changed nothing. When the queue is full and
  // `displaced` is not null, a request of another tenant may give up its place (see WaitingQueue::ToDisplace). It then
  // leaves the scheduler and is returned.
  absl::Status Submit(Request request, std::optional<Displaced>* displaced = nullptr);

  // Replaces the shares of the tenants. Requests that wait or run stay. REQUIRES: CheckTenantShares(shares) is OK.
  void SetTenants(const TenantShares& shares);

  // Ends the request. It holds no blocks from here on and emits nothing more, not even a Finished. Returns false when
  // the request is not known, or not any more. `has_finished`: the caller has found its end, and the next manager may
  // still tell the client so.
  bool Cancel(RequestId request, bool has_finished = false);

  // Ends one sample of the request, provided that it has emitted a token. The request ends with its last sample.
  // Returns false for a beam, and for a sample that is not known or has emitted nothing.
  bool CancelSample(RequestId request, int sample_index);

  // Limits the tokens of later plans, if that is less than max_tokens_per_step. A plan may always have
  // StepLimit::kMinPromptTokens in addition to one token for each running sequence.
  void SetStepLimit(const StepLimit& limit) { step_limit_ = limit; }

  // The next step. An empty plan means that nothing can run now; it is not sent and must not be committed.
  // REQUIRES: fewer than max_plans_in_flight plans are neither committed nor abandoned.
  StepPlan Plan();

  // Restarts the running requests from their tokens if none of them can ever continue. Returns whether it did. A
  // request that was restored may share a block that it must write, while the pool has none for a copy. When it starts,
  // it shares no such block. REQUIRES: the last call of Plan gave an empty plan.
  bool RestartStuck();

  // Returns whether `result` answers the oldest plan in flight slice by slice. The error names what the worker did
  // wrong.
  absl::Status CheckResult(const StepResult& result) const { return plans_in_flight_.CheckResult(result); }

  // Takes the worker's answer to the oldest plan in flight. REQUIRES: CheckResult(result) is OK.
  StepOutput Commit(StepResult result);

  // The worker is lost: all plans in flight are void, its rows and blocks are gone, and every running request waits to
  // be recomputed from its tokens. The next plan is step 1 of a new session.
  void AbandonAll();

  // Does the same, and counts the loss against the requests whose slices were in flight. When the worker has named the
  // sequence at which it failed, only the request of that sequence counts. The requests that are convicted leave the
  // scheduler; they are returned.
  std::vector<Convict> AbandonLost(std::optional<SequenceId> named);

  // Takes all requests out, in the order in which they were submitted. REQUIRES: AbandonAll or AbandonLost was called
  // after the last plan.
  std::vector<MovedRequest> TakeAll();
  // Takes one request out. REQUIRES: it is known, and no plan is in flight, unless the request waits and has no slices
  // in flight.
  MovedRequest Take(RequestId request);

  // Queues a request that another scheduler has given away: before all requests that were submitted here, and after
  // earlier adopted ones. It may exceed max_waiting_requests and the tenant's share of the pool. Otherwise it fails
  // like Submit; then `moved` is as before.
  absl::Status Adopt(MovedRequest&& moved);

  // Continues the requests of an earlier session of the same worker. Their samples stay in their rows, and later
  // sequences get other ids than these. Requests that lack rows or blocks wait. Returns an error for each request that
  // can never fit here. It is gone then. REQUIRES: no request is known and no plan was made; rows, ids of requests and
  // ids of sequences differ; the block manager has the tables of the samples, with num_stored tokens each.
  std::vector<std::pair<RequestId, absl::Status>> Restore(std::vector<RestoredRequest> restored);
  // A request of the earlier session has finished, and these rows have all its samples. Sequences take them only when
  // no others are left, as they do with the ended_rows of restored requests. So another manager still finds there what
  // has ended. REQUIRES: as Restore, which comes later.
  void KeepRows(RequestId request, const std::vector<RowId>& rows);
  // The worker has rows with sequence ids up to this one, so later sequences get greater ids.
  void SkipTo(SequenceId last) { forks_.SkipTo(last); }
  // The next plan ends these rows of the earlier session. No sequence of this scheduler uses them.
  void EndRows(absl::Span<const RowId> rows);

  SchedulerCounts counts() const;
  const SchedulerOptions& options() const { return options_; }

  // The part of counts().waiting_tokens that would be served before this request if it was submitted now.
  int64_t NumTokensAhead(const Request& request) const { return waiting_.NumTokensAhead(request); }

  // See WaitingQueue::Backlogs. The names are valid until the next non-const call.
  std::vector<TenantBacklog> Backlogs() const { return waiting_.Backlogs(); }

  // See WaitingQueue::only_tenant.
  const std::string* OnlyWaitingTenant() const { return waiting_.only_tenant(); }

  // Returns why the request does not run, or nothing when the request is not known.
  std::optional<WaitReason> ExplainWait(RequestId request);

  int num_plans_in_flight() const { return plans_in_flight_.size(); }

  // Views for reports. Groups and sequences are valid until the next non-const call.

  // Returns null when the request is not known.
  const SequenceGroup* FindGroup(RequestId request) const { return Find(request); }
  // The first of the waiting requests, by rank, that hold no blocks and have no slices in flight, and for which `may`
  // returns true.
  std::vector<RequestId> FirstWaiting(int max_requests, absl::FunctionRef<bool(const SequenceGroup&)> may) const;
  // Visits all groups: first the running ones in the order of service, then the waiting ones.
  void ForEachGroup(absl::FunctionRef<void(const SequenceGroup&)> call) const;

  // Visits the running groups.
  void ForEachRunning(absl::FunctionRef<void(const SequenceGroup&)> call) const;

  // The sequence that runs in `row` and has had a slice there. `sequence` is null when there is none.
  struct Occupant {
    RequestId request{0};
    const Sequence* sequence = nullptr;
  };
  Occupant OccupantOf(RowId row) const;
  // Makes the sequence's next slice send its whole block table to the worker, if the sequence still runs in `row`.
  void SendTableAgain(RowId row, SequenceId sequence);

 private:
  // The rank of the first request that is submitted. Adopted requests have lower numbers.
  static constexpr uint64_t kFirstSubmission = uint64_t{1} << 32;

  // Returns what the next plan can compute.
  StepDemand Demand() const;

  // The phases of Plan.
  void PlanRunning(PlanDraft* draft);
  void PlanWaiting(PlanDraft* draft);
  void PlanTrial(PlanDraft* draft);
  void Enter(SequenceGroup* group, const AdmissionControl::Decision& decision, PlanDraft* draft);
  // Gives the rest of the budget to chunks that were cut short for the sequences behind them: to those that are
  // recomputed, or to the others.
  void GrowChunks(PlanDraft* draft, bool are_recomputed);
  StepPlan Complete(PlanDraft draft);
  // The id if another manager could find the request.
  std::optional<RequestId> RecordedAs(const Request& request) const;
  // Returns whether another manager needs the scores of its tokens.
  bool KeepsScores(const Request& request) const;

  // Returns whether the sequence shares blocks that another one has yet to compute, and ends its wait otherwise.
  bool KeepsWaiting(SequenceGroup* group, Sequence* sequence);
  // Returns the most tokens of the next slice.
  int MaxSliceTokens(const SequenceGroup& group, const Sequence& sequence) const;
  // Makes the slots of the sequence's next `num_tokens` tokens writable. Returns false when blocks are short.
  bool TryReserve(Sequence* sequence, int num_tokens, StepPlan* plan);
  // Does the same, and preempts groups as long as blocks are short. Returns false when the sequence gets no slice,
  // because its own group was the cheapest to preempt or no other group is left.
  bool Reserve(const SequenceGroup& group, Sequence* sequence, int num_tokens, PlanDraft* draft);
  // Returns what the tenants hold now, or nothing when no tenant has a limit.
  std::optional<TenantBlocks> HeldByTenants() const;
  SequenceGroup* CheapestVictim() const;  // See RunningSet.
  void Preempt(SequenceGroup* group, PlanDraft* draft);

  SequenceSlice PlanSlice(SequenceGroup* group, Sequence* sequence, int num_tokens, StepPlan* plan,
                          PlanInFlight* in_flight);
  // Offers the newly computed whole blocks of the sequence to the prefix cache.
  void Publish(Sequence* sequence);

  // Prefetches what committing the slices behind slices[index] will read.
  void PrefetchOwners(const std::vector<SliceInFlight>& slices, size_t index) const;
  void CommitSlice(const SliceInFlight& slice, SliceResult result, StepOutput* output);
  // Advances a beam search by one token. REQUIRES: the candidates of all beams are there.
  void AdvanceBeams(SequenceGroup* group, StepOutput* output);

  // The worker has ended the sequence, and its whole group fails.
  void Fail(SequenceGroup* group, const Sequence& sequence, SequenceFailure failure, StepOutput* output);
  // The sequence had ended before the slice was answered. If the slice has failed, the cache forgets what it stored.
  void CommitEnded(SequenceId sequence, const std::optional<SequenceFailure>& failure);

  // Running groups that are no suspects make room for those that are: a group was cleared, or a suspect has come.
  void SuspendCleared();

  // Publishes what the sequence has computed and frees its blocks. Its slices in flight may still fail.
  void Release(SequenceGroup* group, Sequence* sequence);
  // The sequence leaves its group. The group is removed with its last sequence.
  void RemoveSequence(SequenceGroup* group, Sequence* sequence, bool has_finished);
  // A running group gives up its rows and waits. Its blocks are freed, unless `keeps_blocks` says that they have moved
  // to the host tier. The caller then calls running_.EraseSuspended().
  void Suspend(SequenceGroup* group, bool keeps_blocks);
  // The group enters the scheduler, or leaves it. All groups come and go here.
  SequenceGroup* Insert(std::unique_ptr<SequenceGroup> entering, bool runs);
  std::unique_ptr<SequenceGroup> Extract(SequenceGroup* group);
  // Frees everything that the group holds and destroys it.
  // `has_finished`: the request ended normally; its rows stay so that the next manager can tell the client.
  void Remove(SequenceGroup* group, bool has_finished = false);
  // The group continues in place. It waits when rows or blocks are short, or when its samples no longer share the
  // prompt.
  void Resume(SequenceGroup* group);
  SequenceGroup* Find(RequestId request) const;  // Returns null when the request is not known.

  SchedulerOptions options_;  // Only the tenants change.
  bool limits_blocks_;        // See TenantShares::LimitBlocks.
  BlockManager* const blocks_;
  StepLimit step_limit_;

  absl::flat_hash_map<RequestId, std::unique_ptr<SequenceGroup>> groups_;  // Each is in running_ or in waiting_.
  RunningSet running_;
  WaitingQueue waiting_;
  AdmissionControl admission_;
  SequenceForks forks_;
  PlansInFlight plans_in_flight_;
  absl::flat_hash_map<SequenceId, EndedSequence> ended_;  // Ended sequences with slices in flight.
  Suspects suspects_;
  RecordedRows rows_;  // Without options_.keeps_rows there are none.

  StepId next_step_{1};
  uint64_t next_submission_ = kFirstSubmission;
  uint64_t num_adopted_ = 0;
  int num_beam_searches_ = 0;  // The number of groups that are beam searches.
  // The other counts come from the members above.
  int64_t num_preemptions_ = 0;
  int64_t num_swap_outs_ = 0;
  int64_t num_scheduled_tokens_ = 0;
  int64_t num_recomputed_tokens_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SCHEDULER_H_
