#ifndef QUIRE_TESTS_SIM_SIM_WORKER_PROCESS_H_
#define QUIRE_TESTS_SIM_SIM_WORKER_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/step_plan.h"
#include "tests/sim/poison_watch.h"
#include "tests/sim/scenario.h"
#include "tests/sim/shadow_model.h"
#include "tests/sim/shadow_worker.h"

namespace quire {

// A simulated worker process and the connection to it: a ShadowWorker behind the WorkerClient interface. On request it
// dies, restarts, drains, stops answering, or reports wrong tables. Everything happens within the calls. It checks its
// side of the protocol: epochs only increase, and plans come in open sessions only.
class SimWorkerProcess {
 public:
  struct Hooks {
    std::function<void()> on_message;              // A message goes to the loop.
    std::function<void()> on_describe;             // A description was sent.
    std::function<void()> on_drain;                // The worker has said in its session that it drains.
    std::function<void()> on_end;                  // The connection has ended.
    std::function<void(const StepPlan&)> on_plan;  // A plan has come.
    // The session ends because of a poison in this sequence.
    std::function<void(const Poison&, SequenceId)> on_poison;
  };

  SimWorkerProcess(const SimWorker& worker, const ShadowModel& model, Hooks hooks);

  // The process outlives the client. Called once.
  std::unique_ptr<WorkerClient> NewClient();

  void Die();
  // Starts a process that is dead. If `num_blocks` > 0, its pool has this number of blocks.
  void Start(int num_blocks);
  void Drain();
  void SetSilent(bool is_silent);

  // From now on the worker fails when it executes this.
  void AddPoison(const Poison& poison) { poison_watch_.Add(poison); }
  void ForgetPoisons() { poison_watch_ = PoisonWatch(); }

  // Executes the oldest plan and sends the result, or fails. False when there is no result. The error is a rule that
  // the plan breaks.
  absl::StatusOr<bool> Answer();
  // Sends the last result once more. False when there is none.
  bool RepeatLastResult();
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
  bool has_session() const { return session_.has_value(); }
  uint64_t epoch() const { return epoch_; }  // The epoch of the current attempt or session, or of the last one.
  uint64_t last_result_epoch() const { return last_epoch_; }
  const ShadowWorker& memory() const { return *session_; }  // REQUIRES: has_session().
  // The first mistake that the manager has made.
  const absl::Status& status() const { return status_; }

 private:
  class Client;

  void Describe(uint64_t epoch);
  void Open(uint64_t epoch);
  void Send(const StepPlan& plan);
  void Probe(uint64_t epoch);
  void Close();
  // Forgets the state of the connection.
  void EndConnection();
  WorkerClient::Listener* Tell();
  void TellDrain();
  void FailAt(const Poison& poison, SequenceId sequence);
  void Lie(StepResult* result);

  SimWorker worker_;
  const ShadowModel model_;
  const Hooks hooks_;
  WorkerClient::Listener* listener_ = nullptr;
  bool is_alive_ = true;
  bool is_silent_ = false;
  bool is_draining_ = false;
  bool is_connected_ = false;  // An attempt or session is under way.
  uint64_t epoch_ = 0;
  uint64_t greatest_epoch_ = 0;           // The greatest epoch of all sessions of this worker.
  std::optional<uint64_t> closed_epoch_;  // The loop has closed this session and does not know of its end yet.
  std::optional<uint64_t> unanswered_describe_;
  bool has_unanswered_open_ = false;
  std::optional<ShadowWorker> session_;  // The memory. It is empty when a session begins.
  std::deque<StepPlan> plans_;           // Received and not answered, oldest first.
  PoisonWatch poison_watch_;
  std::optional<StepResult> last_result_;
  uint64_t last_epoch_ = 0;  // The epoch of last_result_.
  std::optional<SimAudit> lie_;
  bool has_lied_ = false;
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_WORKER_PROCESS_H_
