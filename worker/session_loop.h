#ifndef QUIRE_WORKER_SESSION_LOOP_H_
#define QUIRE_WORKER_SESSION_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/worker_protocol.h"
#include "quire/v1/worker.pb.h"
#include "worker/executor.h"
#include "worker/worker_stats.h"

namespace quire {

class StepStream;

// The one thread that runs plans, and the rule that there is one session at a time: the one with the greatest epoch.
// Thread-safe.
class SessionLoop {
 public:
  // Starts the thread, which may bind the threads that compute to cores. Both must outlive the loop.
  SessionLoop(Executor* executor, WorkerStats* stats, bool binds_threads);
  ~SessionLoop();

  SessionLoop(const SessionLoop&) = delete;
  SessionLoop& operator=(const SessionLoop&) = delete;

  // The session takes over: the one before ends with ABORTED after its running step, the rows are dropped, then
  // SendOpened. FAILED_PRECONDITION when `epoch` is not greater than every epoch seen; UNAVAILABLE while draining.
  absl::Status Open(std::shared_ptr<StepStream> session, uint64_t epoch);
  // SendResult follows, or End. FAILED_PRECONDITION when kMaxPlansInFlight plans are unanswered. A plan of a session
  // that was replaced is dropped.
  absl::Status Submit(const StepStream* session, v1::StepPlan plan);
  // No more plans will come: the session ends with OK when all have been answered.
  void CloseAfterPlans(StepStream* session);
  // The stream is gone or broken: waiting plans and the rows are dropped.
  void Leave(const StepStream* session);
  // The greatest epoch seen, 0 before the first; and whether a session of it is open.
  uint64_t last_epoch() const;
  bool has_session() const;
  bool is_draining() const;
  // Refuses new sessions and tells the open one, which goes on until its manager has ended it. False when it was still
  // there at the timeout.
  bool Drain(absl::Duration timeout);
  // Finishes the running step, ends the session with UNAVAILABLE and joins the thread. Later calls do nothing.
  void Stop();

 private:
  void Run();
  // Ends the session served, empties the rows, greets the current session. REQUIRES: mutex_ is held.
  void SwitchSession();
  // Begins the first waiting plan, with the lock released.
  void BeginPlan(std::unique_lock<std::mutex>* lock);
  // Waits for the oldest plan that was begun, with the lock released, and answers it.
  void FinishPlan(std::unique_lock<std::mutex>* lock);
  // The session ends with the error of a plan. REQUIRES: mutex_ is held.
  void Fail(const v1::StepPlan& plan, const absl::Status& status);
  // REQUIRES: mutex_ is held.
  void SetCurrent(std::shared_ptr<StepStream> session);

  Executor* const executor_;
  WorkerStats* const stats_;

  mutable std::mutex mutex_;  // Taken before that of a session, never after.
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::shared_ptr<StepStream> current_;  // Who is to be served; null: nobody.
  std::shared_ptr<StepStream> served_;   // Whose rows the executor holds. Changed by the loop thread only.
  uint64_t last_epoch_ = 0;
  uint64_t served_epoch_ = 0;
  std::deque<v1::StepPlan> plans_;  // Of current_, not yet begun.
  int in_flight_ = 0;               // Of current_, begun and waiting.
  bool is_closing_ = false;         // current_ sends no more plans.
  bool is_draining_ = false;
  bool is_stopping_ = false;
  std::condition_variable session_over_;  // Nobody is to be served, and nobody is.

  std::deque<v1::StepPlan> begun_;  // Of served_; touched by the loop thread only.

  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_SESSION_LOOP_H_
