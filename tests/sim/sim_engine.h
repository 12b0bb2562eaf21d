#ifndef QUIRE_TESTS_SIM_SIM_ENGINE_H_
#define QUIRE_TESTS_SIM_SIM_ENGINE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/engine/step_loop.h"
#include "kv_manager/engine/table_audit.h"
#include "scheduler/scheduler.h"
#include "tests/sim/audited_blocks.h"
#include "tests/sim/loop_oracle.h"
#include "tests/sim/plan_audit.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_caller.h"
#include "tests/sim/sim_report.h"
#include "tests/sim/sim_worker_process.h"

namespace quire {

// The real step loop of one worker, without its thread, between callers and a worker that check everything. The blocks
// are audited, and so is every plan. Calls that make no sense now do nothing. Errors are contradictions; after one the
// engine is of no use.
//
// The engine keeps a copy of what lies in the loop's inbox, in the same order. When the scheduler begins or commits a
// step, or a session ends, it therefore knows which requests the loop has seen by then.
class SimEngine : private AuditedBlocks::Observer {
 public:
  // `clock` is borrowed. Runs rounds until the worker has joined.
  SimEngine(const SimWorker& worker, const ShadowModel& model, const ManualClock* clock);
  ~SimEngine() override;

  // Whether a request that has ended with this error was never in the loop's queue.
  static bool IsRefusal(const absl::Status& failure);

  // What other threads do.
  absl::Status Submit(std::shared_ptr<SimCaller> caller);
  void Cancel(SimCaller* caller);
  void CancelSample(SimCaller* caller, int sample_index);
  absl::Status SetDraining(bool is_draining);
  void Ask();
  // Does nothing while an earlier audit is not answered.
  void Audit(SimAudit audit);

  // One round of the loop.
  absl::Status RunRound();
  // Whether the loop's thread would run a round now: something has come, or it is time.
  bool IsRoundDue() const { return has_news_ || wake_us_ <= clock_->NowMicros(); }
  int64_t wake_us() const { return wake_us_; }  // What the last round has returned.

  // What the worker does.
  absl::Status Answer();
  void Lose();
  void Return(int num_blocks);
  void Drain();
  void SetSilent(bool is_silent);
  void RepeatLastResult();

  // Whether what the cache has of the tokens is in the worker's slots. Does nothing while plans are in flight. Adds the
  // blocks to `found`.
  absl::Status Probe(const std::string& salt, std::vector<TokenId> tokens, std::set<BlockId>* found);

  int num_live() const { return static_cast<int>(callers_.size()); }
  // The worker has joined, nothing lies in the inbox, and all requests have ended.
  bool is_idle() const;
  absl::StatusOr<WorkerLoad> Load(const Request& request) const;
  uint64_t digest() const { return digest_; }  // Of all plans.

  // When all requests have ended: nothing is left over, and all counts are right. `callers` are all callers whose
  // request was not refused.
  absl::Status CheckEnd(const std::vector<std::shared_ptr<SimCaller>>& callers);
  SimReport Report() const;

 private:
  // A copy of an event in the loop's inbox.
  struct Posted {
    enum class Kind { kSubmit, kCancel, kStop, kSampleEnd, kResult };
    Kind kind;
    std::shared_ptr<SimCaller> caller = nullptr;
    int sample_index = 0;
  };

  struct Live {
    std::shared_ptr<SimCaller> caller;
    bool is_start_checked = false;
  };

  // AuditedBlocks::Observer
  void OnBeginStep() override;
  void OnStepCommitted() override;
  void OnStepsAbandoned() override;

  std::unique_ptr<PagedBlockManager> MakeBlocks(const PagedBlockManagerOptions& options);
  void OnDescribe();
  void OnPlan(const StepPlan& plan);
  // A plan was made; it is empty when none was sent.
  void EndPlan(const StepPlan& plan);
  void Post(Posted posted);
  // The loop has taken these events out of its inbox and handled them; with `is_until_result` those before the first
  // result and the result itself.
  void TakePosted(bool is_until_result);
  void OnSubmissionTaken(const std::shared_ptr<SimCaller>& caller);
  // The status that the submission must end with, as far as the scheduler decides.
  absl::StatusCode ExpectedAdmission(const Request& request) const;
  // Requests that have ended leave the accounts.
  void DropEnded();
  // Cancels the request as the token stream does when all of its samples are over.
  void PostWantedEnd(SimCaller* caller);

  absl::Status CheckRound();
  absl::Status CheckLoad(const WorkerStatus& status, const WorkerLoad& load) const;
  void CheckAudit(const TableAudit& audit, SimAudit kind);
  int64_t NumTokens() const;
  // Counts all blocks, if it is their turn.
  absl::Status CheckBlocks();
  absl::Status ExplainStall();
  absl::Status CheckCounts(const std::vector<std::shared_ptr<SimCaller>>& callers) const;
  absl::Status CheckCache(const std::vector<std::shared_ptr<SimCaller>>& callers);
  void AddPool(SimReport* report) const;
  void Digest(const StepPlan& plan);
  template <typename... Parts>
  void Complain(const Parts&... parts);

  SimWorker options_;  // Of the pool that the loop has now.
  const ShadowModel model_;
  const ManualClock* const clock_;
  LoopOracle oracle_;
  SimWorkerProcess process_;
  AuditedBlocks* blocks_ = nullptr;  // Owned by the loop, as these: null until the worker has joined.
  PrefixIndex* index_ = nullptr;
  Scheduler* scheduler_ = nullptr;
  std::unique_ptr<PlanAudit> audit_;
  std::unique_ptr<StepLoop> loop_;

  std::deque<Posted> posted_;          // In the inbox.
  size_t num_taken_ = 0;               // The first of posted_: the current round has taken them.
  std::map<RequestId, Live> callers_;  // Of the live requests, as the loop knows them.
  int64_t num_tokens_of_ended_ = 0;
  bool has_news_ = true;  // Since the last round.
  int64_t wake_us_ = 0;
  bool is_drained_by_operator_ = false;
  bool is_planning_ = false;  // A step was begun, and its plan is not known.
  bool was_plan_empty_ = false;
  SchedulerCounts before_plan_;
  int num_unanswered_questions_ = 0;
  bool is_audit_pending_ = false;       // An audit is not answered.
  int64_t audit_deadline_us_ = kNever;  // Of an audit that waits for a plan.
  bool is_queue_known_ = false;  // How many requests wait when a submission of this round is taken is num_waiting_.
  int num_waiting_ = 0;
  int64_t num_wanted_blocks_ = 0;        // By live requests that have not started.
  int64_t next_deadline_us_ = kNever;    // Of live requests.
  std::vector<RequestId> must_fail_;     // In this round.
  std::vector<SimCaller*> wanting_end_;  // Live ones that have seen the end of all their samples.
  bool has_changed_ = false;             // Since CheckBlocks was called, something may have changed in the blocks.
  int num_unchecked_ = 0;                // Calls since all blocks were counted.
  uint64_t probe_ = UINT64_MAX / 2;      // Sequence id of the last probe.
  int64_t num_probed_tokens_ = 0;        // In this pool.
  int64_t num_crowded_plans_ = 0;        // After which somebody waits.
  int64_t num_sent_copies_ = 0;
  bool has_searched_ = false;
  uint64_t digest_ = 0;
  SimReport report_;
  absl::Status status_;  // The first contradiction.
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_ENGINE_H_
