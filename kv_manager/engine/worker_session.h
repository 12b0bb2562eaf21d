// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_WORKER_SESSION_H_
#define QUIRE_KV_MANAGER_ENGINE_WORKER_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/loop_inbox.h"
#include "kv_manager/engine/moving_request.h"
#include "kv_manager/engine/rebalancer.h"
#include "kv_manager/engine/step_loop_options.h"
#include "kv_manager/engine/table_audit.h"
#include "kv_manager/engine/worker_pool.h"
#include "kv_manager/worker_link/worker_client.h"
#include "kv_manager/worker_link/worker_link.h"

namespace quire {

class LoopReport;

// The worker of a step loop: how it joins, is lost and comes back, and what that means for the requests. When the
// worker is lost, they move to other workers of its generation. If there are none, and with options.changes_numerics,
// they move to others of its family. Those that no other worker can take wait. When their worker has come back, they
// are recomputed in the new session. When it has another pool than before, they move to the new pool, and those that
// can never fit there fail. All that still wait fail when the worker stays away for longer than the grace. They also
// fail when it comes back in another generation, unless only its numerics are others and options.changes_numerics is
// set. A request that is convicted of making its workers fail (see Suspicion) fails alone. The errors that the requests
// get do not tell the address of the worker.
//
// The requests of a worker that drains move to other workers that have room for them now. They leave between two plans,
// when no plan is in flight. The others stay.
//
// A worker that is silent (see WorkerLink) for longer than failover_after counts as lost as soon as another one can
// continue one of its requests. While there is none, it is kept, because it has what was computed and may only be
// paused.
//
// Owned by the step-loop thread.
class WorkerSession {
 public:
  // All pointers are borrowed. The listener of `client` is `inbox`, which passes the client's events on to here.
  WorkerSession(const StepLoopOptions* options, const StepLoopHooks* hooks, std::unique_ptr<WorkerClient> client,
                LoopInbox* inbox, LiveRequests* live, LoopReport* report, int64_t now_us);

  // Events of the worker. An event of an attempt or session that has ended is dropped.
  void OnDescribed(WorkerDescribed event, int64_t now_us);
  void OnOpened(const SessionOpened& event, int64_t now_us);
  void OnDraining(const WorkerDraining& event);
  void OnProbed(const WorkerProbed& event, int64_t now_us);
  void OnLost(WorkerLost event, int64_t now_us);
  // The result is checked and can be committed: returns the plan that it answers. Nothing when it must be dropped; a
  // wrong result ends the session.
  std::optional<WorkerLink::SentPlan> OnAnswered(const PlanAnswered& event, int64_t now_us);

  // Once per round, before Poll: gives requests of a lost worker, and of one whose requests are to move away, to other
  // workers. With options.rebalances, also gives waiting requests to idle workers.
  void MoveRequests(int64_t now_us);
  // Says whether the operator wants the requests to move to other workers. A worker that drains wants it by itself.
  void SetMigrating(bool is_migrating) {
    is_migrating_ = is_migrating;
    next_move_us_ = 0;
  }
  // Returns whether requests wait for the end of the plans in flight to move. No plan may be made meanwhile.
  bool is_fenced() const { return is_fenced_; }
  // Once per round, before planning: connects, gives up a worker that does not answer, and fails the requests when the
  // grace has passed.
  void Poll(int64_t now_us);
  // Once per round, after planning: notes whether requests wait that found no room, see Rebalancer.
  void OnPlanned(int64_t now_us);
  // Once per round, after planning: ends the session of a worker that drains, when nothing is left to do.
  void EndIfDrained(int64_t now_us);
  // After the round was published: logs that the worker has joined. Whoever reads the line finds the worker ready.
  void LogJoined();
  // Once per round: the load that others see now tells whether the worker drains.
  void OnPublished() {
    if (drain_ == Drain::kAnnounced) drain_ = Drain::kPublished;
  }
  // Next time at which MoveRequests, Poll or EndIfDrained must run, barring new events.
  int64_t next_wake_us(int64_t now_us) const;

  // The loop ends: the session is closed, and all requests fail except those that are left to the next manager.
  void Stop(int64_t now_us);

  bool is_ready() const { return link_.is_ready(); }
  // Returns whether a session was opened, or an attempt has failed after which requests of another manager are not
  // expected.
  bool has_tried() const { return has_tried_; }
  // Returns whether the worker wants no new requests until the end of the session. Implies is_ready().
  bool is_drained_by_worker() const { return drain_ != Drain::kNone; }
  // Returns whether the worker is ready, but has not answered a plan for longer than overdue_us.
  bool IsOverdue(int64_t now_us) const { return link_.is_ready() && now_us >= overdue_at_us(); }
  // Says for clients why requests do not run: the worker is not there. Returns an empty text if it is.
  std::string CauseOfAbsence(int64_t now_us) const;
  // Returns whether the worker is lost and requests still wait for it.
  bool MayReturn(int64_t now_us) const;
  // REQUIRES: is_ready().
  void Send(const StepPlan& plan, int64_t now_us) { link_.Send(plan, now_us); }
  // See WorkerLink.
  void SetPlanningTime(int64_t us, int64_t cpu_us) { link_.SetPlanningTime(us, cpu_us); }
  const WorkerLink& link() const { return link_; }
  // The time of the last result, or of the start of the session. 0: there was no session.
  int64_t last_step_us() const { return last_step_us_; }

  // Returns null until the worker has joined for the first time.
  WorkerPool* pool() { return pool_.get(); }
  const WorkerPool* pool() const { return pool_.get(); }
  // The generation of the pool, and its family; 0 without a pool.
  GenerationId generation() const { return generation_; }
  FamilyId family() const { return family_; }
  // The worker of the pool, without its tokenizer files. REQUIRES: pool() is not null.
  const WorkerDescription& description() const { return *description_; }
  TableAuditor* tables() { return &tables_; }
  const TableAuditor& tables() const { return tables_; }

 private:
  // Says how far a drain that the worker wants has come. It ends with the session.
  enum class Drain {
    kNone,       // The worker takes new requests.
    kAnnounced,  // Only this loop knows of the drain, so new requests may still be placed here.
    kPublished,  // load() tells it. The session ends as soon as no request and no plan is left.
  };

  // Says whether the requests in flight may be the reason why a session is lost.
  enum class Blame { kRequestsInFlight, kNobody };

  // When requests may move. kNever: they stay.
  int64_t movable_at_us() const;
  // Returns whether the worker is silent for long enough and another one can continue a request at once.
  bool IsOutdone(int64_t now_us) const;
  // A session that was opened.
  struct Joined {
    uint64_t epoch;
    int num_requests;  // Number of requests that waited for the worker.
  };
  struct MoveNeeds {
    bool is_last_chance = false;  // The requests that stay will fail, so none shall stay.
    bool needs_room = false;      // See MoveWish.
  };
  // The requests that are to move, by falling number of generated tokens.
  std::vector<MoveWish> Wishes(int64_t now_us, const MoveNeeds& needs) const;
  // Returns whether the requests are to leave a worker that is ready.
  bool is_leaving() const { return is_migrating_ || is_drained_by_worker(); }
  // Returns whether the worker is ready and keeps what it can serve.
  bool rebalances() const {
    return options_->rebalances && hooks_->move_request != nullptr && link_.is_ready() && !is_leaving();
  }
  void Rebalance(int64_t now_us);
  // Gives all requests to other workers that these can take. REQUIRES: no plan is in flight.
  void GiveRequestsAway(int64_t now_us, bool is_last_chance);
  // Returns how many of the requests have moved.
  int GiveAway(const std::vector<MoveWish>& wishes);
  MovingRequest Take(const SequenceGroup& group);
  // The family if the requests may move to other generations of it now. Otherwise 0.
  FamilyId MovableFamily() const;
  void AdoptPool(const WorkerDescription& worker, GenerationId generation, int64_t now_us);
  // The worker has come back in another generation, to which requests that stay may not change.
  void FailForeign(const WorkerDescription& worker, FamilyId family);
  void Lose(absl::Status reason, int64_t now_us, Blame blame = Blame::kRequestsInFlight);
  // The scheduler gives up the session. The requests that are convicted fail.
  void AbandonLost(const absl::Status& reason);
  // The session is over. Sets the times from which the requests wait.
  void NoteEnd(int64_t now_us);
  void EndAttemptOrSession(absl::Status reason, int64_t now_us);
  void LogFailedAttempt(const absl::Status& reason, int64_t now_us);
  int64_t overdue_at_us() const;  // kNever while no plan is in flight.
  // Returns why a request fails when the grace has passed.
  std::string CauseOfGrace(bool has_begun) const;
  void FailAll(const absl::Status& status) {
    FailAll([&](const LiveRequests::Entry& /*entry*/) { return status; });
  }
  void FailAll(absl::FunctionRef<absl::Status(const LiveRequests::Entry&)> status_of);

  const StepLoopOptions* const options_;
  const StepLoopHooks* const hooks_;
  LoopInbox* const inbox_;
  LiveRequests* const live_;
  LoopReport* const report_;

  std::optional<WorkerDescription> description_;
  std::unique_ptr<WorkerPool> pool_;
  GenerationId generation_{0};
  FamilyId family_{0};
  TableAuditor tables_;
  int64_t last_step_us_ = 0;
  int64_t lost_since_us_;   // Used while no session is open.
  int64_t failover_at_us_;  // Its requests may move to other workers then, if no session is open.
  Drain drain_ = Drain::kNone;
  bool has_tried_ = false;
  bool is_migrating_ = false;
  bool is_fenced_ = false;
  bool is_taken_over_ = false;  // The last session was lost to another manager.
  Rebalancer rebalancer_;
  int64_t next_move_us_ = 0;         // When MoveRequests looks for other workers again.
  std::optional<Joined> joined_;     // Not logged yet.
  bool has_logged_waiting_ = false;  // It was logged since the worker was lost that it is not there yet.
  std::string logged_reason_;        // This reason was logged last since the worker was lost, without its numbers.
  WorkerLink link_;                  // The last member: its client may call until it is destroyed.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_WORKER_SESSION_H_
