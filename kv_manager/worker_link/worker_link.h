// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_LINK_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_LINK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/worker_protocol.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/step_plan.h"

namespace quire {

struct WorkerLinkOptions {
  // The first session adopts what another manager has left on the worker. After a few attempts whose connection broke
  // before the session was open, and after an inventory that was wrong, it adopts nothing. Attempts that the worker
  // refuses cost nothing.
  bool adopts = false;
  // The time at which this manager has begun to lead, in milliseconds. So it exceeds the epochs of earlier managers,
  // unless the clocks differ. See OnDescribed.
  uint64_t first_epoch = 1;
  int64_t connect_timeout_us = 10'000'000;  // It limits the time from the start of an attempt to the open session.
  // It limits the time from one result to the next while plans are in flight. A process that answers probes has more
  // time if its steps are slow, see WorkerLink::StepLimitUs.
  int64_t step_timeout_us = 60'000'000;
  // Interval at which the worker is asked whether its process still answers, while a plan is unanswered.
  int64_t probe_interval_us = 500'000;
  int64_t probe_timeout_us = 1'000'000;  // Time without an answer after which a worker is silent.
  // The wait after the first failed attempt. It doubles with each further failure, up to max_backoff_us.
  int64_t min_backoff_us = 100'000;
  int64_t max_backoff_us = 5'000'000;
  // While a worker restarts, nobody answers at its address. Meanwhile, the wait grows no further than to this value,
  // until the worker has been away for restart_us.
  int64_t max_restart_backoff_us = 200'000;
  int64_t restart_us = 60'000'000;
};

// Keeps one worker connected. It makes attempts with growing epochs and a backoff, and notices a worker that does not
// answer. Owned by the step-loop thread. It does nothing by itself, but tells when it must be called again.
//
//   waiting --Poll--> describing --OnDescribed--> opening --OnOpened--> ready
//      ^                                                                  |
//      +-------------------- Lose (from every state) ---------------------+
class WorkerLink {
 public:
  // Takes the client. REQUIRES: the listener of the client is set.
  WorkerLink(const WorkerLinkOptions& options, std::unique_ptr<WorkerClient> client);

  // Starts an attempt when one is due, and sends the probes that are due. An error means that the attempt or session
  // has run out of time. The caller must then call Lose().
  absl::Status Poll(int64_t now_us);
  // The time when Poll has something to do, if nothing else happens before.
  int64_t next_poll_us() const;

  // The worker may serve: opens the session. The epoch of the session exceeds the worker's last one. There is one
  // exception: when this manager has had a session and the worker is in a session now, the epoch is not raised. If a
  // manager with a greater epoch has that session, the worker refuses the new one. If it is the last session of this
  // manager, whose end the worker has not noticed yet, the epoch is greater anyway, and the new session replaces it.
  void OnDescribed(const WorkerDescription& worker);
  void OnOpened();
  // The worker may not serve: tells it why. The caller must then call Lose().
  void Refuse(const absl::Status& reason);
  // Ends the attempt or session. The next attempt starts after the backoff, with the next epoch.
  void Lose(absl::Status reason, int64_t now_us);

  void Send(const StepPlan& plan, int64_t now_us);  // REQUIRES: is_ready().
  struct SentPlan {
    int64_t sent_us;
    int num_tokens;
    int64_t planning_us = 0;      // See SetPlanningTime.
    int64_t planning_cpu_us = 0;  // The same.
  };
  // Says how long it took to make and to send the last plan, and how much CPU time. REQUIRES: a plan is in flight.
  void SetPlanningTime(int64_t us, int64_t cpu_us);
  // A result has come. Returns the plan that it answers.
  SentPlan OnResult(int64_t now_us);

  // The last attempt would have adopted what the worker has, and the next one adopts as well. It is true for a few
  // attempts only, because clients wait meanwhile.
  bool adopts_again() const { return adopts_again_; }
  bool is_ready() const { return state_ == State::kReady; }
  bool is_current(uint64_t epoch) const { return state_ != State::kWaiting && epoch == epoch_; }
  uint64_t epoch() const { return epoch_; }  // Of the current attempt or session, or else of the last.
  int num_plans_in_flight() const { return num_in_flight_; }
  uint64_t num_steps() const { return num_steps_; }  // Results that have come in this session.
  // The process has answered a probe.
  void OnProbed(int64_t now_us);
  // The longest time for the step that runs. A process that does not answer probes has step_timeout_us. One that
  // answers them may be slow, so it has 20 times the duration of its slowest recent step, but at least step_timeout_us
  // and at most 10 times that. Until its first result it has 4 times that.
  int64_t StepLimitUs(int64_t now_us) const;
  // The session is about to be lost because of a request, which has been found. So the worker is not sick, and the next
  // attempt comes soon.
  void ForgiveLosses() { backoff_us_ = options_.min_backoff_us; }
  // Returns whether a plan is unanswered and the process of the worker does not answer probes. A process that was
  // stopped is silent, and so is one behind a network that loses everything. A slow step is not: other threads answer
  // probes.
  bool IsSilent(int64_t now_us) const;
  // The time of the last result, or of the last plan that was sent when no other was in flight.
  int64_t progress_us() const { return progress_us_; }
  const absl::Status& last_error() const { return last_error_; }  // OK while ready.
  RankStates ranks() const { return client_->ranks(); }

 private:
  enum class State { kWaiting, kDescribing, kOpening, kReady };

  // The worker has answered a plan, or has got the first plan in flight.
  void NoteProgress(int64_t now_us);

  const WorkerLinkOptions options_;
  const std::unique_ptr<WorkerClient> client_;

  State state_ = State::kWaiting;
  uint64_t epoch_;
  bool has_been_ready_ = false;
  int num_adoptions_left_;  // Attempts that adopt and break.
  int num_failed_adoptions_ = 0;
  bool adopts_again_ = false;
  int64_t next_attempt_us_ = 0;     // Used while waiting.
  int64_t attempt_started_us_ = 0;  // Used while describing and opening.
  int64_t backoff_us_;
  std::optional<int64_t> away_since_us_;  // The first attempt since nobody answers.
  absl::Status last_error_;

  int num_in_flight_ = 0;
  SentPlan in_flight_[kMaxPlansInFlight] = {};  // Oldest first.
  int64_t progress_us_ = 0;                     // See progress_us().
  int64_t next_probe_us_ = 0;                   // Used while plans are in flight.
  std::optional<int64_t> unanswered_probe_us_;  // When the first probe was sent that has no answer.
  // The time of the slowest step of late. It falls slowly with each step that is faster. 0: there was no step.
  int64_t slowest_us_ = 0;
  uint64_t num_steps_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WORKER_LINK_H_
