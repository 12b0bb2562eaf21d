// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SIM_WORKER_PROCESS_H_
#define QUIRE_TESTS_SIM_SIM_WORKER_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/step_plan.h"
#include "tests/sim/poison_watch.h"
#include "tests/sim/scenario.h"
#include "tests/sim/shadow_model.h"
#include "tests/sim/shadow_worker.h"

namespace quire {

// A simulated worker process, which is one rank of a group, and the connection to it: a ShadowWorker behind the
// WorkerClient interface. On request it dies, restarts, drains, stops answering, or reports wrong tables. When its
// manager dies it keeps its rows and blocks for the next one. Everything happens within the calls. It checks its side
// of the protocol: epochs only increase, and plans come in open sessions only.
class SimWorkerProcess {
 public:
  struct Hooks {
    std::function<void()> on_end = [] {};  // The connection has ended.
    // The session ends because the worker refuses a plan that follows from a wrong inventory.
    std::function<void()> on_refusal = [] {};
    // The session ends because of a poison in this sequence.
    std::function<void(const Poison&, SequenceId)> on_poison = [](const Poison&, SequenceId) {};
  };

  // The rank `rank` of `worker.ranks`. A rank other than 0 tells the digests of its results and rows alone.
  SimWorkerProcess(const SimWorker& worker, const ShadowModel& model, int rank);

  // A manager connects. The process outlives the client. Called once for each manager.
  std::unique_ptr<WorkerClient> NewClient(Hooks hooks);
  // The manager is dead: its client does nothing any more, and nothing is told to it. The worker still executes
  // `num_plans` of its plans, whose results are lost. What it then has is kept for the next manager. Returns the starts
  // of the plans that it never executes.
  std::vector<SequenceStart> OnManagerLost(int num_plans);
  // What the worker tells the next manager about its rows is wrong in this way.
  void Damage(SimDamage damage);

  void Die();
  // Starts a process that is dead. If `num_blocks` > 0, its pool has this number of blocks.
  void Start(int num_blocks);
  void Drain();
  void SetSilent(bool is_silent);

  // From now on the worker fails when it executes this.
  void AddPoison(const Poison& poison) { poison_watch_.Add(poison); }
  void ForgetPoisons() { poison_watch_ = PoisonWatch(); }

  // Executes the oldest plan and keeps the result until SendResult(), or fails. False when it has failed. The error is
  // a rule that the plan breaks. REQUIRES: has_plan().
  absl::StatusOr<bool> Execute();
  // Sends the oldest result that was not sent.
  void SendResult();
  uint64_t last_digest() const { return unsent_.back().result.digest; }  // Of the result that was made last.
  StepId next_step() const { return plans_.front().step; }               // REQUIRES: has_plan().
  int num_sent() const { return num_sent_; }                             // Results in this session.
  int num_unsent() const { return static_cast<int>(unsent_.size()); }
  // Another rank of the group has failed or died: the session ends, and nothing of it is kept.
  void Leave();
  // The next result has other tokens than the other ranks' results.
  void Diverge() { diverges_ = true; }
  // Plans may be wrong because of what rank 0 has told about its rows.
  bool may_refuse_plans() const { return may_refuse_plans_; }
  void MayRefusePlans() { may_refuse_plans_ = true; }
  // The manager has died before it sent this rank its last plan.
  void DropLastPlan() { plans_.pop_back(); }
  // The sequences that have failed in the last plan that was executed.
  const std::vector<PoisonWatch::FailedSlice>& failed_slices() const { return poison_watch_.failed_slices(); }
  // Sends the last result once more. REQUIRES: has_result().
  void RepeatLastResult();
  bool has_result() const { return last_result_.has_value(); }
  // The worker answers the next question for its tables as `lie` says.
  void TellTables(SimAudit lie) {
    lie_ = lie;
    has_lied_ = false;
  }
  // Whether the worker has reported wrong tables since TellTables.
  bool has_lied() const { return has_lied_; }

  bool is_alive() const { return is_alive_; }
  bool has_plan() const { return !plans_.empty(); }
  bool is_draining() const { return is_draining_; }
  bool is_silent() const { return is_silent_; }
  // Another manager has had sessions with this worker, which is not in one now.
  void OnOtherManager() { greatest_epoch_ += 3; }
  int num_plans() const { return static_cast<int>(plans_.size()); }
  bool has_session() const { return session_.has_value(); }
  uint64_t epoch() const { return epoch_; }  // The epoch of the current attempt or session, or of the last one.
  uint64_t last_result_epoch() const { return last_epoch_; }
  const ShadowWorker& memory() const { return *session_; }  // REQUIRES: has_session().
  // What the worker had at the start of the session, and whether the manager was told something else about it. Null
  // when the session has adopted nothing.
  const WorkerInventory* adopted() const { return adopted_.has_value() ? &*adopted_ : nullptr; }
  bool was_damaged() const { return was_damaged_; }
  // Whether the worker may have rows that its manager does not know.
  bool has_hidden_rows() const { return has_hidden_rows_; }
  // The first mistake that the manager has made.
  const absl::Status& status() const { return status_; }

 private:
  class Client;

  void Describe(uint64_t epoch);
  void Open(uint64_t epoch, bool adopts);
  void Send(const StepPlan& plan);
  void Probe(uint64_t epoch);
  void Close();
  // Forgets the state of the connection.
  void EndConnection();
  void TellDescription(uint64_t epoch);
  // Executes the plan, in which sequences may fail.
  absl::StatusOr<StepResult> Run(const StepPlan& plan);
  void FailAt(const Poison& poison, SequenceId sequence);
  void FailAtPlan(const absl::Status& reason);
  void Lie(StepResult* result);
  void Spoil(WorkerInventory* inventory);
  bool HasKept() const { return kept_.has_value() && worker_.keeps_rows != 0; }
  bool is_of_group() const { return worker_.ranks > 1; }

  SimWorker worker_;
  const ShadowModel model_;
  const int rank_;
  Hooks hooks_;
  Client* client_ = nullptr;  // Client of the manager that lives.
  WorkerClient::Listener* listener_ = nullptr;
  bool is_alive_ = true;
  bool is_silent_ = false;
  bool is_draining_ = false;
  bool is_connected_ = false;  // An attempt or session is under way.
  uint64_t epoch_ = 0;
  uint64_t greatest_epoch_ = 0;           // The greatest epoch of all sessions of this worker.
  std::optional<uint64_t> closed_epoch_;  // The loop has closed this session and does not know of its end yet.
  std::optional<uint64_t> unanswered_describe_;
  std::optional<bool> unanswered_open_;  // Whether the session is to adopt.
  std::optional<ShadowWorker> session_;  // The memory. It is empty when a session begins.
  std::optional<ShadowWorker> kept_;     // The memory that a session has left for the next manager.
  std::optional<WorkerInventory> adopted_;
  SimDamage damage_ = SimDamage::kNothing;  // Of the next inventory.
  uint64_t num_inventories_ = 0;
  bool was_damaged_ = false;       // The inventory of this session was not the truth.
  bool may_refuse_plans_ = false;  // Because of that, plans of this session may be wrong.
  bool has_hidden_rows_ = false;
  std::deque<StepPlan> plans_;  // Received and not executed, oldest first.
  struct Unsent {
    StepResult result;
    int num_tokens;  // Of its plan.
  };
  std::deque<Unsent> unsent_;  // Oldest first.
  int num_sent_ = 0;
  bool diverges_ = false;
  uint64_t kept_salt_ = 0;  // Damage of the digest of what is kept.
  PoisonWatch poison_watch_;
  std::optional<StepResult> last_result_;
  uint64_t last_epoch_ = 0;  // The epoch of last_result_.
  std::optional<SimAudit> lie_;
  bool has_lied_ = false;
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_WORKER_PROCESS_H_
