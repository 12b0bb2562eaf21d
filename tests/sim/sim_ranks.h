// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SIM_RANKS_H_
#define QUIRE_TESTS_SIM_SIM_RANKS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/step_plan.h"
#include "tests/sim/poison_watch.h"
#include "tests/sim/scenario.h"
#include "tests/sim/shadow_model.h"
#include "tests/sim/shadow_worker.h"
#include "tests/sim/sim_worker_process.h"

namespace quire {

// The simulated worker of one step loop: one process, or the ranks of a group behind a RankGroupClient. The ranks
// execute a step together or not at all, as real ones do, because each needs the sums of the others. Their messages may
// lag, and each can die, stop answering or differ alone.
//
// It checks what a group must not do: adopt rows that not all ranks have kept, and commit a step before all ranks have
// answered it.
class SimRanks {
 public:
  struct Hooks {
    std::function<void()> on_message;              // A message goes to the loop.
    std::function<void()> on_describe;             // A description was sent.
    std::function<void()> on_drain;                // The worker has said in its session that it drains.
    std::function<void()> on_end;                  // The connection to a rank has ended.
    std::function<void(const StepPlan&)> on_plan;  // A plan has come.
    std::function<void(StepId)> on_executed;       // A plan was executed.
    std::function<void()> on_adopted;              // A session was opened with what the worker has kept.
    // The session ends because the worker refuses a plan that follows from a wrong inventory.
    std::function<void()> on_refusal;
    // The session ends because of a poison in this sequence.
    std::function<void(const Poison&, SequenceId)> on_poison;
    std::function<void()> on_difference;  // The session must end because the results of two ranks differ.
  };
  // A result that all ranks have sent.
  struct Answered {
    std::vector<PoisonWatch::FailedSlice> failed;  // The sequences that have failed in its step.
    std::vector<SequenceId> early;                 // See ShadowWorker::early_sequences.
  };

  SimRanks(const SimWorker& worker, const ShadowModel& model);
  ~SimRanks();

  // A manager connects. The group outlives the client. Called once for each manager.
  std::unique_ptr<WorkerClient> NewClient(Hooks hooks);
  // See SimWorkerProcess. The manager may have died before the last ranks got its last plan, so these drop it. No rank
  // begins a plan that not all have.
  std::vector<SequenceStart> OnManagerLost(int num_plans);
  void Damage(SimDamage damage);

  // One rank dies. The others learn of it from the manager, or from the next step, which they do not begin.
  void Die(int rank);
  // Starts the ranks that are dead. If `num_blocks` > 0, the smallest pool has this number of blocks.
  void Start(int num_blocks);
  void Drain(int rank);
  void SetSilent(int rank, bool is_silent);
  // The next result of the rank has other tokens than the other ranks' results. Does nothing without a group.
  void Diverge(int rank);

  void AddPoison(const Poison& poison);
  void ForgetPoisons();

  // Executes the oldest plan if all ranks can, and sends what was executed, except from the rank `lagging`. Returns the
  // results that are complete now, oldest first. The error is a rule that a plan breaks.
  absl::StatusOr<std::vector<Answered>> Answer(std::optional<int> lagging);
  // Sends the last result once more. False when there is none.
  bool RepeatLastResult();
  // The worker answers the next question for its tables as `lie` says.
  void TellTables(SimAudit lie);
  bool has_lied() const { return rank(0).has_lied(); }

  int size() const { return static_cast<int>(ranks_.size()); }
  bool is_alive() const;
  bool has_plan() const { return rank(0).has_plan() || !executed_.empty(); }
  bool is_draining() const;
  bool has_session() const { return is_open_; }
  uint64_t epoch() const { return rank(0).epoch(); }
  uint64_t last_result_epoch() const { return rank(0).last_result_epoch(); }
  const ShadowWorker& memory() const { return rank(0).memory(); }  // REQUIRES: has_session().
  const WorkerInventory* adopted() const { return is_open_ ? rank(0).adopted() : nullptr; }
  bool was_damaged() const { return rank(0).was_damaged(); }
  bool has_hidden_rows() const { return rank(0).has_hidden_rows(); }
  // The first mistake that the manager has made.
  absl::Status status() const;

 private:
  class Client;

  const SimWorkerProcess& rank(int i) const { return *ranks_[i]; }
  // A rank that is chosen by a hash, so that a scenario need not say which.
  int AnyRank();
  bool CanExecute() const;
  bool HaveAllSessions() const;
  int MostUnsent() const;  // The largest number of results that one rank has not sent.
  absl::Status Execute();
  // Whether all ranks have kept the same rows for this session, or none has any. Called when all have opened it.
  bool HaveKeptTheSame() const;
  // The session is over on the side of the loop or of a rank.
  void EndSession();
  void Complain(const char* text) { status_.Update(absl::InternalError(text)); }

  std::vector<std::unique_ptr<SimWorkerProcess>> ranks_;
  Hooks hooks_;
  Client* client_ = nullptr;  // Client of the manager that lives.
  bool is_open_ = false;      // The loop was told of the session, and of no end.
  // Steps of which a rank has not sent its result, oldest first, and whether all ranks have drawn the same.
  struct Executed {
    Answered answered;
    bool differs = false;
  };
  std::deque<Executed> executed_;
  uint64_t num_drawn_ = 0;  // See AnyRank.
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_RANKS_H_
