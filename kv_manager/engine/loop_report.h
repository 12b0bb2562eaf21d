// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_LOOP_REPORT_H_
#define QUIRE_KV_MANAGER_ENGINE_LOOP_REPORT_H_

#include <cstdint>
#include <string>

#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/wait_meter.h"
#include "kv_manager/engine/work_time.h"
#include "kv_manager/engine/worker_pool.h"
#include "kv_manager/engine/worker_session.h"
#include "kv_manager/engine/worker_status.h"
#include "scheduler/step_plan.h"

namespace quire {

// Counts the work of a step loop, and makes the status and the load of it for readers. Owned by the step-loop thread.
class LoopReport {
 public:
  explicit LoopReport(const std::string& address);

  // The other objects of the loop's thread add to these counters.
  StepLoopStats* stats() { return &status_.stats; }
  // Measures how long requests wait and run. WorkerSession and StepLoop tell it what happens.
  WaitMeter* wait() { return &wait_; }
  const WaitMeter& wait() const { return wait_; }

  // A plan was made in this time and is about to be sent.
  void CountPlan(const StepPlan& plan, int64_t duration_us);
  // Counts a result that arrived `step_us` after its plan was sent. The worker needed `worker_us` for it.
  void CountResult(int64_t step_us, int64_t worker_us);
  // Counts the manager's part of a step, whose tokens have just been handed to the streams.
  void CountManagerPart(const WorkTime& time);
  // Adds what scheduler and blocks of the pool have counted since the last call.
  void CountPool(const WorkerPool& pool);
  // The pool is about to be replaced: counts its last work. What is counted next belongs to another pool.
  void EndPool(const WorkerPool& pool);

  // Takes over the state of the session and of its pool.
  void Update(const WorkerSession& session);
  const WorkerStatus& status() const { return status_; }
  // The load that goes with status(), with the requests of `live`.
  WorkerLoad Load(const WorkerSession& session, const LiveRequests& live, int64_t now_us) const;

 private:
  WorkerStatus status_;
  WaitMeter wait_;
  SchedulerCounts counted_;        // The part of the scheduler's counts that is in the stats.
  int64_t counted_evictions_ = 0;  // The part of the blocks' evictions that is in the stats.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_LOOP_REPORT_H_
