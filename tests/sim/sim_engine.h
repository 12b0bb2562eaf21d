// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SIM_ENGINE_H_
#define QUIRE_TESTS_SIM_SIM_ENGINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/engine/step_loop.h"
#include "kv_manager/engine/table_audit.h"
#include "scheduler/scheduler.h"
#include "tests/sim/audited_blocks.h"
#include "tests/sim/blame_oracle.h"
#include "tests/sim/loop_oracle.h"
#include "tests/sim/plan_audit.h"
#include "tests/sim/rebalance_oracle.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_caller.h"
#include "tests/sim/sim_ranks.h"
#include "tests/sim/sim_report.h"
#include "tests/sim/violation.h"

namespace quire {

// The real step loop of one worker, without its thread, between simulated callers and a simulated worker. Both check
// everything that they receive. The blocks and all plans are audited. A call that makes no sense in the current state
// does nothing. An error is a contradiction; after an error the engine must not be used any more.
//
// The engine keeps a copy of the events in the loop's inbox, in the same order. So it always knows which requests the
// loop has seen when the scheduler begins or commits a step, or when a session ends.
class SimEngine : private AuditedBlocks::Observer {
 public:
  // Looks for another engine for a request of `from`, as StepLoopHooks::move_request does. When there is one, calls
  // `take`, then from->Release() and Adopt() of the other engine.
  using MoveHook = std::function<bool(SimEngine* from, const MoveWish& wish, TakeRequest take)>;
  // Says for which of these requests there is another engine now, as StepLoopHooks::find_movable does.
  using FindHook = std::function<size_t(SimEngine* from, absl::Span<const MoveWish> wishes)>;
  // The worker has a request of an earlier manager, with this record and prompt. Returns its new stream, and whether
  // nobody wants its tokens any more. An error, also of `keep`, refuses it.
  struct Restored {
    std::shared_ptr<SimCaller> caller;
    bool is_unwanted = false;
    // As RequestRestored::keep. `ran_last`: the request ran here when the last manager died, and the worker tells it.
    std::function<absl::Status(const RestoredCopy& copy, bool ran_last)> keep;
  };
  using RestoreHook = std::function<absl::StatusOr<Restored>(SimEngine* to, const RequestToRestore& found)>;
  // The numerics of ready workers that have other ones than this, or "".
  using OthersHook = std::function<std::string(const SimEngine* engine)>;
  // Without them, no request leaves, none is restored, and no worker has other numerics.
  struct Hooks {
    MoveHook move = nullptr;
    FindHook find = nullptr;
    RestoreHook restore = nullptr;
    OthersHook others = nullptr;
  };
  // A sequence that ran when the manager was lost, in a row that the worker had started for it.
  struct RunningAtDeath {
    RequestId request;
    std::string record;  // "" when the request has none.
    SequenceId sequence;
    RowId row;
    std::vector<BlockId> table;  // As the manager had it.
  };
  // What is left of an engine whose manager is dead.
  struct Remains {
    std::unique_ptr<SimRanks> ranks;
    std::vector<RunningAtDeath> running = {};
    bool has_searched = false;  // Its worker may have blocks of beams that have died.
    int num_managers = 0;       // The managers that the worker has had.
  };
  // What the engine knows of a request that moves.
  struct Moving {
    std::shared_ptr<SimCaller> caller;
    bool is_start_checked = false;
    BlameOracle::Record record = {};
    int num_beam_tokens = 0;  // Tokens of its beams that it has not emitted.
    // What its caller has cancelled and the loop has not handled.
    bool has_cancelled = false;
    bool has_stopped = false;
    std::vector<int> ended_samples = {};
  };

  // `clock` is borrowed. Runs rounds until the worker has joined.
  SimEngine(const SimWorker& worker, const ShadowModel& model, const ManualClock* clock, Hooks hooks);
  // Part of another manager, which knows nothing. The worker joins in later rounds.
  SimEngine(const SimWorker& worker, const ShadowModel& model, const ManualClock* clock, Hooks hooks, Remains remains);
  ~SimEngine() override;
  // The manager is lost. Its worker finishes `num_plans` plans. The engine must only be destroyed after this.
  Remains Die(int num_plans);

  // The blocks that the group holds while it runs, or must get to run.
  static int64_t BlocksOf(const SequenceGroup& group, const CacheGroups& groups);
  // Whether a request that has ended with this error was never in the loop's queue.
  static bool IsRefusal(const absl::Status& failure);

  // Calls that other threads make in production.
  absl::Status Submit(std::shared_ptr<SimCaller> caller);
  void Cancel(SimCaller* caller);
  void CancelSample(SimCaller* caller, int sample_index);
  // With `migrates`, the requests move to other workers.
  absl::Status SetDraining(bool is_draining, bool migrates = false);
  // A request leaves, and another engine's request comes.
  Moving Release(RequestId request);
  void Adopt(MovingRequest request, Moving moving);
  void Ask();
  // Does nothing while an earlier audit is not answered.
  void Audit(SimAudit audit);

  // One round of the loop.
  absl::Status RunRound();
  // Whether the loop's thread would run a round now: the inbox has a message, or the wake-up time has come.
  bool IsRoundDue() const { return has_news_ || wake_us_ <= clock_->NowMicros(); }
  int64_t wake_us() const { return wake_us_; }  // The time that the last round has returned.

  // Actions of the worker. A rank counts modulo the number of ranks.
  absl::Status Answer(std::optional<int> lagging = std::nullopt);  // See SimRanks.
  void Lose(int rank = 0);
  void Return(int num_blocks);
  void Drain(int rank = 0);
  void Diverge(int rank) { ranks_->Diverge(rank % ranks_->size()); }
  // From now on the worker describes itself with a model of this generation. Nothing may be submitted before it has
  // joined. REQUIRES: it is dead, and the inbox has no submissions.
  void SetGeneration(GenerationId generation) { next_generation_ = generation; }
  // Of one rank, or of all of them.
  void SetSilent(bool is_silent, std::optional<int> rank = std::nullopt);
  void RepeatLastResult();
  void Damage(SimDamage damage) { ranks_->Damage(damage); }
  // Forgets the requests that have made the worker fail. REQUIRES: is_idle().
  void ForgetPoisons() { ranks_->ForgetPoisons(); }

  // Checks that the worker's slots hold the tokens that the cache has of this prompt. Adds the cached blocks to
  // `found`. Does nothing while plans are in flight.
  absl::Status Probe(const std::string& salt, std::vector<TokenId> tokens, std::set<BlockId>* found);

  // The live requests that other workers may take now, if they can hold them.
  std::vector<Request> Orphans() const;
  // Those that wait here and may move to an idle worker: all that `has_target` is true for. See RebalanceOracle.
  std::set<RequestId> Rebalanceable(absl::FunctionRef<bool(const MoveWish&)> has_target) const;
  // A round was made before which these could have moved.
  absl::Status CheckStaying(const std::set<RequestId>& could_move);
  int num_live() const { return static_cast<int>(callers_.size()); }
  // Whether the worker has joined, the inbox is empty, and all requests have ended.
  bool is_idle() const;
  // Whether the inbox is empty and all requests have ended.
  bool is_empty() const { return posted_.empty() && callers_.empty(); }
  // Whether the worker has a plan to answer.
  bool has_plan() const { return ranks_->has_plan(); }
  bool is_alive() const { return ranks_->is_alive(); }
  bool is_ready() const { return loop_->status()->is_ready; }
  int block_size() const { return options_.block_size; }
  GenerationId generation() const { return generation_; }
  const ShadowModel& model() const { return model_; }
  bool changes_numerics() const { return options_.approximate != 0; }
  absl::StatusOr<WorkerLoad> Load(const Request& request) const;
  WorkerLoad Load() const { return loop_->load(); }
  uint64_t digest() const { return digest_; }  // A hash of all plans.

  // Called when all requests have ended. Checks that nothing is left over and that all counts are right. `totals` are
  // the totals of the callers whose requests have ended here. `callers` are all whose requests were here, and maybe
  // others.
  absl::Status CheckEnd(const CallerTotals& totals, const std::vector<std::shared_ptr<SimCaller>>& callers);
  // The same without the contents of the cache.
  absl::Status CheckQuiet(const CallerTotals& totals);
  SimReport Report() const;

 private:
  // A copy of an event in the loop's inbox.
  struct Posted {
    enum class Kind { kSubmit, kAdopt, kCancel, kStop, kSampleEnd, kResult, kOpened };
    Kind kind;
    std::shared_ptr<SimCaller> caller = nullptr;
    int sample_index = 0;
    Moving moving = {};
    std::vector<PoisonWatch::FailedSlice> failed = {};  // The sequences that have failed in the step of a result.
    std::vector<SequenceId> early = {};                 // See ShadowWorker::early_sequences.
  };

  struct Live {
    std::shared_ptr<SimCaller> caller;
    bool is_start_checked = false;
    // The tokens that a request which had started had when it came here. -1: it has not come so.
    int64_t num_tokens_at_adoption = -1;
    int num_beam_tokens = 0;  // See Moving.
    bool has_moved = false;   // Whether it came from another engine, or from an earlier manager.
    bool has_run = false;     // Since it has come. Not known of a request that was submitted here.
    std::optional<int64_t> came_us = std::nullopt;  // When it has come from another engine.
  };

  // What a request has asked the blocks for, and got.
  struct MadePin {
    std::string tenant;
    std::string salt;
    std::vector<TokenId> tokens;
    int64_t ttl_us;
    int num_tokens;
  };

  // A request of an earlier manager.
  struct Restoring {
    std::shared_ptr<SimCaller> caller;
    bool is_over = false;  // The worker has all of it.
    int64_t num_tokens = 0;
  };

  // AuditedBlocks::Observer
  void OnBeginStep() override;
  void OnStepCommitted() override;
  void OnStepsAbandoned() override;
  void OnPin(const std::string& tenant, double max_share, const std::string& salt, absl::Span<const TokenId> tokens,
             int64_t expires_us, int num_tokens) override;
  void OnRestored(const RestoredBlocks& restored) override;
  // The row of the inventory in which the sequence ran when the last manager died. Null: there is none.
  const WorkerInventory::Row* RowSinceDeath(const RunningAtDeath& running, int* num_rows) const;

  SimRanks::Hooks RanksHooks();
  absl::StatusOr<RequestRestored> OnRestore(const RequestToRestore& found);
  // The loop handles the session that takes rows over, so it has handled what came before.
  void TakePostedUntilOpened();
  // All rows were taken over.
  void FinishRestore();
  // What ran when the last manager died continues where it was.
  void CheckRevived(const RestoredBlocks& restored);
  void CheckRevivedSearch(const Request& request, const RestoredBlocks& restored);
  // The request has left the scheduler without an end, so no later manager may find it.
  void OnGone(const Request& request);
  // The request has come, perhaps again.
  void OnHere(RequestId request);
  void OnExecuted(StepId step);

  bool OnWish(const MoveWish& wish, TakeRequest take);
  void OnAdoptionTaken(Moving moving);
  // Compares the cached tokens with which a request has started, when that is known.
  void CheckStart(Live* live);
  // A round is over: notes which of the requests that have moved here run.
  void NoteRunning();
  int64_t WantedBlocks(const Live& live) const;
  GenerationId Admit();
  std::unique_ptr<PagedBlockManager> MakeBlocks(const PagedBlockManagerOptions& options);
  void OnDescribe();
  void OnPoison(const Poison& poison, SequenceId sequence);
  // The loop commits the result that was taken last: notes the requests that must fail now.
  void NoteReported();
  BlameOracle::Slices SlicesOf(const StepPlan& plan) const;
  bool IsSampleLive(RequestId request, int sample_index) const;
  void Settle();                                  // Tells the oracle of blame what the last step has ended.
  bool IsTooLarge(const Request& request) const;  // For the current pool.
  bool ExceedsContext(const Request& request) const;
  void OnPlan(const StepPlan& plan);
  // A plan was made; it is empty when none was sent.
  void EndPlan(const StepPlan& plan);
  void Post(Posted posted);
  // The caller has cancelled its request before the loop took it out of the inbox.
  void Withdraw(SimCaller* caller);
  // The loop has taken the posted events out of its inbox and handled them. With `is_until_result` it has taken only
  // the events up to and including the first result.
  void TakePosted(bool is_until_result);
  // The same up to the event with which this request has come.
  void TakePostedUntil(RequestId request);
  bool TakeOnePosted();  // Returns whether it is a result.
  void OnSubmissionTaken(const std::shared_ptr<SimCaller>& caller);
  // The status with which the scheduler must answer the submission.
  absl::StatusCode ExpectedAdmission(const Request& request) const;
  // The tenant that must give up a place of the full queue for a request of this tenant.
  std::optional<std::string> ExpectedLoser(const std::string& tenant) const;
  absl::Status CheckDisplaced();
  // Compares the pins that the caller was told of, if that is news, with those that were made.
  void CheckPins(SimCaller* caller);
  // Forgets the requests that have ended.
  void DropEnded();
  void CheckReason(const absl::Status& failure);
  // Cancels the request as the token stream does when all of its samples are over.
  void PostWantedEnd(SimCaller* caller);

  // Returns whether the worker has what the loop believes: it is in the loop's session and has executed all plans.
  bool IsOfSession() const;
  absl::Status CheckRound();
  absl::Status CheckLoad(const WorkerStatus& status, const WorkerLoad& load) const;
  void CheckAudit(const TableAudit& audit, SimAudit kind);
  // Counts all blocks, if enough calls have passed since the last time.
  absl::Status CheckBlocks();
  absl::Status ExplainStall();
  absl::Status CheckCounts(const CallerTotals& totals) const;
  absl::Status CheckCache(const std::vector<std::shared_ptr<SimCaller>>& callers);
  void AddPool(SimReport* report) const;
  void Digest(const StepPlan& plan);
  template <typename... Parts>
  void Complain(const Parts&... parts) {
    status_.Update(Violation(parts...));
  }

  SimWorker options_;  // The options of the loop's current pool.
  const ShadowModel model_;
  const ManualClock* const clock_;
  const Hooks hooks_;
  LoopOracle oracle_;
  BlameOracle blame_;
  RebalanceOracle rebalance_;
  GenerationId generation_;          // Of the loop's current pool.
  GenerationId next_generation_;     // Of the worker's next description.
  bool is_drain_first_ = false;      // In this session the worker has told of a drain before any loss.
  bool is_unrepairable_ = false;     // An audit ends the session.
  std::optional<SequenceId> named_;  // The sequence that the worker has named as the reason of the loss.
  std::unique_ptr<SimRanks> ranks_;
  // Owned by the loop, and null until the worker has joined.
  AuditedBlocks* blocks_ = nullptr;
  PrefixIndex* index_ = nullptr;
  Scheduler* scheduler_ = nullptr;
  std::unique_ptr<PlanAudit> audit_;
  std::unique_ptr<StepLoop> loop_;

  std::deque<Posted> posted_;          // Events in the inbox.
  size_t num_taken_ = 0;               // Number of events that the current round has taken from the front of posted_.
  std::map<RequestId, Live> callers_;  // The callers of live requests, as the loop knows them.
  std::vector<MadePin> made_pins_;     // Of requests that were not looked at since.
  bool has_news_ = true;               // Whether something has happened since the last round.
  int64_t wake_us_ = 0;
  bool is_drained_by_operator_ = false;
  bool is_planning_ = false;  // A step was begun, and its plan is not known yet.
  bool was_plan_empty_ = false;
  SchedulerCounts before_plan_;
  std::map<RequestId, int64_t> blocks_of_;        // Before the plan, see PlanAudit::Check.
  int64_t num_tokens_of_wish_ = 0;                // Of the last request in this round that was to move.
  int num_beam_tokens_of_wish_ = 0;               // See Moving.
  bool is_inbox_handled_ = false;                 // The current round has handled all events.
  std::vector<RunningAtDeath> running_at_death_;  // Of the manager before.
  bool has_searched_before_ = false;
  int num_managers_before_ = 0;
  std::vector<Restoring> restoring_;  // Between the adoption and FinishRestore.
  // The requests of the inventory that are neither restored nor refused. Their clients must start them again.
  std::map<RequestId, std::shared_ptr<SimCaller>> lost_;
  bool is_restoring_ = false;  // The loop is adopting.
  using Records = std::map<RequestId, std::string>;
  Records refused_;                                // The requests of the inventory that were refused.
  Records gone_;                                   // See OnGone: no plan was sent since.
  std::deque<std::pair<StepId, Records>> ending_;  // Plans that end the rows of requests.
  std::optional<RequestId> passed_on_;             // The request that leaves as soon as it has come.
  CallerTotals moved_;  // Counts that left with moved requests, less counts that came with them.
  int num_unanswered_questions_ = 0;
  bool is_audit_pending_ = false;       // An audit has not been answered yet.
  int64_t audit_deadline_us_ = kNever;  // Deadline of an audit that waits for a plan.
  bool is_queue_known_ = false;         // Whether num_waiting_ requests wait when the round takes a submission.
  int num_waiting_ = 0;
  // By tenant, under the same condition: the requests that wait, which of them have not run, and the requests that must
  // leave the queue in this round.
  std::map<std::string, int> waiting_by_tenant_;
  std::map<std::string, int> new_by_tenant_;
  std::map<std::string, int> to_displace_;
  std::map<std::string, int> displaced_;  // The requests that have left it in this round.
  int64_t num_wanted_blocks_ = 0;         // Blocks wanted by live requests that have not started.
  int64_t next_deadline_us_ = kNever;     // The earliest deadline of live requests.
  std::set<RequestId> must_fail_;         // Requests that must fail in this round because they make workers fail.
  std::set<RequestId> reported_;          // Requests that must fail, because the worker has reported it in this round.
  std::vector<PoisonWatch::FailedSlice> failed_;  // Failed slices of the result that was taken last.
  std::vector<SequenceId> early_;                 // The same, see ShadowWorker::early_sequences.
  std::vector<SimCaller*> wanting_end_;           // Live callers that have seen the end of all their samples.
  bool has_changed_ = false;                      // Whether the blocks may have changed since CheckBlocks was called.
  int num_unchecked_ = 0;                         // The number of calls since all blocks were counted.
  uint64_t probe_ = UINT64_MAX / 2;               // Sequence id of the last probe.
  int64_t num_probed_tokens_ = 0;                 // Tokens found by probes in this pool.
  int64_t num_crowded_plans_ = 0;                 // Plans after which a request waits.
  int64_t num_sent_copies_ = 0;
  bool has_searched_ = false;
  uint64_t digest_ = 0;
  SimReport report_;
  absl::Status status_;  // The first contradiction.
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_ENGINE_H_
