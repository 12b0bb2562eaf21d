// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_SESSION_LOOP_H_
#define QUIRE_WORKER_SESSION_LOOP_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "base/worker_protocol.h"
#include "quire/v1/worker.pb.h"
#include "worker/executor.h"
#include "worker/inventory.h"
#include "worker/rank_group.h"
#include "worker/step_session.h"
#include "worker/worker_stats.h"

namespace quire {

// Which rows and labels stay when a session ends.
struct OrphanHold {
  absl::Duration duration = absl::ZeroDuration();  // How long they are kept. With 0, nothing is kept or labelled.
  std::string layout_id = "";                      // For InventoryHeader.
  InventoryLimits limits = {};
};

// What a manager reads of StepResult. One of an earlier version does not read all of it.
struct AcceptedResults {
  bool failures = true;   // Without it, a sequence that fails ends the session.
  bool postponed = true;  // Without it, no draw is postponed.
};

// Owns the thread that runs plans, and enforces that there is one session at a time: the one with the greatest epoch.
// When a session ends, its rows and labels stay for the orphan hold. A session that adopts them gets an inventory.
// Thread-safe.
class SessionLoop {
 public:
  // Starts the thread. If `binds_threads` is true, the thread first binds itself and the threads that compute to cores.
  // `executor` and `stats` must outlive the loop. `on_refused` is called when Refuse has an effect and when that effect
  // ends; it must not call the loop. A rank of a group has `ranks`, which must outlive the loop; else it is null.
  SessionLoop(Executor* executor, WorkerStats* stats, bool binds_threads,
              std::function<void(bool is_refused)> on_refused = nullptr, const OrphanHold& orphan_hold = {},
              RankGroup* ranks = nullptr);
  ~SessionLoop();

  SessionLoop(const SessionLoop&) = delete;
  SessionLoop& operator=(const SessionLoop&) = delete;

  // Makes `session` the current one. The session before it ends with ABORTED once the steps that it has begun are done.
  // If `adopts` is true, its rows and labels stay, or those that the orphan hold has kept; otherwise the executor
  // forgets them. Then SendOpened follows. Returns FAILED_PRECONDITION when `epoch` is not greater than every epoch
  // seen or is more than a day ahead of the clock, or when `term` is less than the greatest one seen (kStaleTerm), and
  // UNAVAILABLE while the worker drains or stops; `session` is not used then. `accepts` says what the
  // manager understands. `group` has the ranks that run the session, see RankGroup::Check; others than ranks must get
  // an empty one.
  absl::Status Open(std::shared_ptr<StepSession> session, uint64_t epoch, bool adopts = false, uint64_t term = 0,
                    const AcceptedResults& accepts = {}, const v1::SessionGroup& group = {});
  // A manager says that it will not use this worker. The worker counts as refused until a session is opened. Does
  // nothing during a session.
  void Refuse(const std::string& reason);
  // Queues a plan; SendResult or End follows. Returns FAILED_PRECONDITION when kMaxPlansInFlight plans are unanswered.
  // Drops the plan when `session` was replaced.
  absl::Status Submit(const StepSession* session, v1::StepPlan plan);
  // Says that the session sends no more plans. It ends with OK when all its plans have been answered.
  void CloseAfterPlans(StepSession* session);
  // Says that the stream of the session is gone or broken. The loop drops its waiting plans, finishes those that it has
  // begun, and holds its rows.
  void Leave(const StepSession* session);
  // The group of this rank, or null.
  const RankGroup* ranks() const { return ranks_; }
  // The greatest epoch seen, or 0 before the first.
  uint64_t last_epoch() const;
  // Returns whether a session is current, which then has the greatest epoch seen.
  bool has_session() const;
  // Returns whether Drain or Stop was called, so that no new session is accepted.
  bool is_draining() const;
  // Refuses new sessions from now on and sends SendDraining to the current one, which continues until its manager ends
  // it. Waits for that end, but no longer than `timeout`. Returns whether the session ended in time.
  bool Drain(absl::Duration timeout);
  // Finishes the running step, ends the session with UNAVAILABLE and joins the thread. Later calls do nothing.
  void Stop();
  // A thread on which sessions may write their answers. The thread that runs the plans would lose its core in a write,
  // to whoever reads it. Thread-safe.
  ThreadPool* sender() { return &sender_; }

 private:
  // The loop never returns to an earlier phase.
  enum class Phase {
    kServing,
    kDraining,  // Drain was called: the current session continues, and no other is accepted.
    kStopping,  // Stop was called: the thread ends after the running step.
  };

  // Binds the threads that compute. The sender gets all cores but that of the calling thread, if it is bound to one.
  void BindThreads();
  void Run() QUIRE_EXCLUDES(mutex_);
  // Ends the session that was served, and greets the current session or holds what was served. Releases the mutex while
  // it makes an inventory.
  void SwitchSession() QUIRE_REQUIRES(mutex_);
  void LogEndOfServed() QUIRE_REQUIRES(mutex_);
  // The session that was served is over, also for the other ranks. Releases the mutex meanwhile.
  void LeaveGroup() QUIRE_REQUIRES(mutex_);
  // Waits until all ranks have joined the session that is served. False when that has failed, which ends the session.
  // Releases the mutex meanwhile.
  bool JoinGroup() QUIRE_REQUIRES(mutex_);
  // Returns whether rows and labels may be held or adopted.
  bool CanHold() const;
  // Begins the orphan hold.
  void Hold() QUIRE_REQUIRES(mutex_);
  // Waits for something to do, or for the end of the orphan hold.
  void WaitForWork() QUIRE_REQUIRES(mutex_);
  // Looks for a moment whether the oldest plan that was begun is done. Releases the mutex meanwhile.
  void PollDevice() QUIRE_REQUIRES(mutex_);
  // Forgets the rows, the labels and the last results.
  void Drop();
  // Begins the first waiting plan. Releases the mutex while the executor works.
  void BeginPlan() QUIRE_REQUIRES(mutex_);
  // Waits for the oldest plan that was begun, and answers it. Releases the mutex while the executor works.
  void FinishPlan() QUIRE_REQUIRES(mutex_);
  // Returns the error that ends the session because of the failures in the result. OK if it continues.
  absl::Status ErrorOf(const v1::StepResult& result) const;
  // Ends the session because `plan` failed.
  void Fail(const v1::StepPlan& plan, const absl::Status& status) QUIRE_REQUIRES(mutex_);
  void SetCurrent(std::shared_ptr<StepSession> session) QUIRE_REQUIRES(mutex_);
  // An empty reason: the worker is not refused.
  void SetRefusal(const std::string& reason) QUIRE_REQUIRES(mutex_);

  Executor* const executor_;
  WorkerStats* const stats_;
  const std::function<void(bool is_refused)> on_refused_;
  const OrphanHold orphan_hold_;
  RankGroup* const ranks_;  // Null unless this is a rank of a group.

  // A thread that holds it may take a session's own mutex. No thread takes it while it holds a session's mutex.
  mutable Mutex mutex_;
  CondVar wake_;          // Notified when the loop thread has something to do.
  CondVar session_over_;  // Notified when both current_ and served_ are null.
  // The session to be served; null when there is none.
  std::shared_ptr<StepSession> current_ QUIRE_GUARDED_BY(mutex_);
  // The session that plans are run for; null when there is none. Only the loop thread changes it.
  std::shared_ptr<StepSession> served_ QUIRE_GUARDED_BY(mutex_);
  uint64_t last_epoch_ QUIRE_GUARDED_BY(mutex_) = 0;
  uint64_t last_term_ QUIRE_GUARDED_BY(mutex_) = 0;  // The greatest one seen.
  uint64_t served_epoch_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::deque<v1::StepPlan> plans_ QUIRE_GUARDED_BY(mutex_);  // Plans of current_ that are not begun.
  int in_flight_ QUIRE_GUARDED_BY(mutex_) = 0;               // Plans of current_ that are not answered.
  bool adopts_ QUIRE_GUARDED_BY(mutex_) = false;             // current_ adopts what the session before it has left.
  AcceptedResults accepts_ QUIRE_GUARDED_BY(mutex_);         // What the manager of current_ reads.
  v1::SessionGroup group_ QUIRE_GUARDED_BY(mutex_);          // The ranks of current_.
  bool is_closing_ QUIRE_GUARDED_BY(mutex_) = false;         // current_ sends no more plans: CloseAfterPlans.
  std::string refusal_ QUIRE_GUARDED_BY(mutex_);             // The reason of the last Refuse; empty: not refused.
  Phase phase_ QUIRE_GUARDED_BY(mutex_) = Phase::kServing;

  // These are used by the loop thread only.
  std::deque<v1::StepPlan> begun_;  // Plans of served_ that are begun and not finished, the oldest first.
  LastSteps last_steps_;            // Empty if nothing is ever held.
  bool has_failed_ = false;         // A step has failed, so the rows and labels of the executor are undefined.
  AcceptedResults served_accepts_;  // As accepts_, for served_.
  std::optional<std::chrono::steady_clock::time_point> hold_end_;  // Set during an orphan hold,
  std::optional<int64_t> held_since_us_;                           // and so is this time of the steady clock.

  ThreadPool sender_{1};

  Mutex join_mutex_;
  std::thread thread_ QUIRE_GUARDED_BY(join_mutex_);
};

}  // namespace quire

#endif  // QUIRE_WORKER_SESSION_LOOP_H_
