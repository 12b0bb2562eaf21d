// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_LOOP_ORACLE_H_
#define QUIRE_TESTS_SIM_LOOP_ORACLE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/worker_status.h"
#include "tests/sim/scenario.h"

namespace quire {

// Says what a step loop must do about its worker: when a session must end and when it must not, and when requests may
// fail and when they must. It is written from the contract, without the code of the loop. SimEngine reports all events
// to it.
class LoopOracle {
 public:
  // The loop starts at `now_us`.
  LoopOracle(const SimWorker& worker, int64_t now_us) : worker_(worker), lost_since_us_(now_us) {}

  // Called between rounds: the inbox has an event that must end the open session.
  void OnLossPosted() { is_loss_due_ = true; }
  bool is_loss_due() const { return is_loss_due_; }
  // Called between rounds: the worker has said in its session that it drains.
  void OnDrainPosted() { is_drain_posted_ = true; }
  // Called at any time: the session, or the attempt to open one, has ended on the side of the worker.
  void OnConnectionEnded() { is_drain_posted_ = false; }
  // Called at any time: the process of the worker does not answer probes, or does so again.
  void SetSilent(bool is_silent) {
    is_silent_ = is_silent;
    was_silent_ |= is_silent;
  }

  void BeginRound(int64_t now_us, bool is_worker_draining);
  // Called in a round:
  // The worker has described itself with another model.
  void OnGenerationReplaced() { was_generation_replaced_ = true; }
  void OnPlanSent();
  void OnCommitted();
  // An audit has found a difference that cannot be repaired.
  void OnUnrepairable() { is_loss_due_ = true; }
  // The session has ended. `num_running` requests were running, and `num_live` requests have not ended.
  void OnSessionEnded(int num_running, int num_live);
  // The worker has described itself for the first time, or with another pool than before.
  void OnPoolReplaced() {
    was_pool_replaced_ = true;
    has_pool_ = true;
  }

  // Returns whether a request that was failed in this round may fail with this error. `is_too_large`: it exceeds the
  // pool. `exceeds_context`: it exceeds the context of the model, which is the same on all workers.
  absl::Status CheckFailure(const absl::Status& failure, int64_t deadline_us, bool has_started, bool is_ready,
                            bool is_too_large, bool exceeds_context) const;
  // Called at the end of the round, with the status and load that the loop has published.
  absl::Status EndRound(const WorkerStatus& status, const WorkerLoad& load, int num_live);

  // The worker of the session drains.
  bool is_worker_draining() const { return was_ready_ && is_drain_posted_; }
  bool was_pool_replaced() const { return was_pool_replaced_; }
  bool has_session_ended() const { return has_ended_; }
  // Whether a request that may be the reason for the loss may move to another worker in this round.
  bool MaySuspectsMove() const;
  // Whether the session that was open before this round is still open.
  bool is_session_open() const { return was_ready_ && !has_ended_; }
  int64_t num_interruptions() const { return num_interruptions_; }

 private:
  bool IsGraceOver(int64_t lost_since_us) const;
  // The step takes too long for a process that answers probes. One that was silent meanwhile may be lost earlier.
  bool IsTimeUp() const;
  bool MayTimeBeUp() const;
  bool IsLate(int64_t limit_us) const;

  const SimWorker worker_;
  int64_t now_us_ = 0;
  bool was_ready_ = false;  // Before this round.
  int64_t lost_since_us_;
  bool is_grace_over_before_ = false;
  bool has_pool_ = false;

  // State of the session.
  int64_t num_sent_ = 0;
  int64_t num_committed_ = 0;
  int64_t progress_us_ = 0;  // Time of the last commit, or of the last plan that was sent when none was in flight.
  int64_t slowest_us_ = 0;   // The time of the slowest step of late, in all sessions.
  bool is_silent_ = false;
  bool was_silent_ = false;  // At some time since the last commit.
  bool is_drain_posted_ = false;
  bool is_drain_published_ = false;  // The load of an earlier round tells of the drain.
  // Consecutive rounds since the drain in which nothing was left to do and the session was open.
  int num_idle_rounds_ = 0;

  // State of the round.
  bool is_loss_due_ = false;
  bool is_time_up_ = false;
  bool has_ended_ = false;
  bool is_worker_draining_ = false;
  int num_live_at_end_ = 0;
  int num_in_flight_at_end_ = 0;
  bool was_pool_replaced_ = false;
  bool was_generation_replaced_ = false;

  int64_t num_losses_ = 0;
  int64_t num_interruptions_ = 0;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_LOOP_ORACLE_H_
