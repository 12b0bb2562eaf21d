#ifndef QUIRE_WORKER_SESSION_LOOP_H_
#define QUIRE_WORKER_SESSION_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/worker_protocol.h"
#include "quire/v1/worker.pb.h"
#include "worker/executor.h"
#include "worker/step_session.h"
#include "worker/worker_stats.h"

namespace quire {

// Owns the thread that runs plans, and enforces that there is one session at a time: the one with the greatest epoch.
// Thread-safe.
class SessionLoop {
 public:
  // Starts the thread. If `binds_threads` is true, the thread first binds itself and the threads that compute to cores.
  // `executor` and `stats` must outlive the loop. `on_refused` is called when Refuse has an effect and when that effect
  // ends; it must not call the loop.
  SessionLoop(Executor* executor, WorkerStats* stats, bool binds_threads,
              std::function<void(bool is_refused)> on_refused = nullptr);
  ~SessionLoop();

  SessionLoop(const SessionLoop&) = delete;
  SessionLoop& operator=(const SessionLoop&) = delete;

  // Makes `session` the current one. The session before it ends with ABORTED once its running step is done, the
  // executor forgets its rows, and then SendOpened follows. Returns FAILED_PRECONDITION when `epoch` is not greater
  // than every epoch seen or is more than a day ahead of the clock, and UNAVAILABLE while the worker drains or stops;
  // `session` is not used then.
  absl::Status Open(std::shared_ptr<StepSession> session, uint64_t epoch);
  // A manager says that it will not use this worker. The worker counts as refused until a session is opened. Does
  // nothing during a session.
  void Refuse(const std::string& reason);
  // Queues a plan; SendResult or End follows. Returns FAILED_PRECONDITION when kMaxPlansInFlight plans are unanswered.
  // Drops the plan when `session` was replaced.
  absl::Status Submit(const StepSession* session, v1::StepPlan plan);
  // Says that the session sends no more plans. It ends with OK when all its plans have been answered.
  void CloseAfterPlans(StepSession* session);
  // Says that the stream of the session is gone or broken. The loop drops its waiting plans and its rows.
  void Leave(const StepSession* session);
  // The greatest epoch seen, or 0 before the first.
  uint64_t last_epoch() const;
  // Whether a session is current, which then has the greatest epoch seen.
  bool has_session() const;
  // Whether Drain or Stop was called, so that no new session is accepted.
  bool is_draining() const;
  // Refuses new sessions from now on and sends SendDraining to the current one, which goes on until its manager ends
  // it. Waits for that end, but no longer than `timeout`. Returns whether the session ended in time.
  bool Drain(absl::Duration timeout);
  // Finishes the running step, ends the session with UNAVAILABLE and joins the thread. Later calls do nothing.
  void Stop();

 private:
  // The loop never returns to an earlier phase.
  enum class Phase {
    kServing,
    kDraining,  // Drain was called: the current session goes on, and no other is accepted.
    kStopping,  // Stop was called: the thread ends after the running step.
  };

  void Run() QUIRE_EXCLUDES(mutex_);
  // Ends the session that was served, resets the executor and greets the current session.
  void SwitchSession() QUIRE_REQUIRES(mutex_);
  // Begins the first waiting plan. Releases the mutex while the executor works.
  void BeginPlan() QUIRE_REQUIRES(mutex_);
  // Waits for the oldest plan that was begun, and answers it. Releases the mutex while the executor works.
  void FinishPlan() QUIRE_REQUIRES(mutex_);
  // Ends the session because `plan` failed.
  void Fail(const v1::StepPlan& plan, const absl::Status& status) QUIRE_REQUIRES(mutex_);
  void SetCurrent(std::shared_ptr<StepSession> session) QUIRE_REQUIRES(mutex_);
  // An empty reason: the worker is not refused.
  void SetRefusal(const std::string& reason) QUIRE_REQUIRES(mutex_);

  Executor* const executor_;
  WorkerStats* const stats_;
  const std::function<void(bool is_refused)> on_refused_;

  // A thread that holds it may take a session's own mutex. No thread takes it while it holds a session's mutex.
  mutable Mutex mutex_;
  CondVar wake_;          // Notified when the loop thread has something to do.
  CondVar session_over_;  // Notified when both current_ and served_ are null.
  // The session to be served; null when there is none.
  std::shared_ptr<StepSession> current_ QUIRE_GUARDED_BY(mutex_);
  // The session whose rows the executor holds; null when there is none. Only the loop thread changes it.
  std::shared_ptr<StepSession> served_ QUIRE_GUARDED_BY(mutex_);
  uint64_t last_epoch_ QUIRE_GUARDED_BY(mutex_) = 0;
  uint64_t served_epoch_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::deque<v1::StepPlan> plans_ QUIRE_GUARDED_BY(mutex_);  // Plans of current_ that are not begun.
  int in_flight_ QUIRE_GUARDED_BY(mutex_) = 0;               // Plans of current_ that are not answered.
  bool is_closing_ QUIRE_GUARDED_BY(mutex_) = false;         // current_ sends no more plans: CloseAfterPlans.
  std::string refusal_ QUIRE_GUARDED_BY(mutex_);             // The reason of the last Refuse; empty: not refused.
  Phase phase_ QUIRE_GUARDED_BY(mutex_) = Phase::kServing;

  // Plans of served_ that are begun and not finished, the oldest first. Used by the loop thread only.
  std::deque<v1::StepPlan> begun_;

  Mutex join_mutex_;
  std::thread thread_ QUIRE_GUARDED_BY(join_mutex_);
};

}  // namespace quire

#endif  // QUIRE_WORKER_SESSION_LOOP_H_
