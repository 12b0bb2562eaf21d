// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/loop_report.h"

#include "base/clock.h"

namespace quire {

LoopReport::LoopReport(const std::string& address) {
  status_.address = address;
}

void LoopReport::CountPlan(const StepPlan& plan, int64_t duration_us) {
  StepLoopStats& stats = status_.stats;
  stats.plan_seconds.Observe(Seconds(duration_us));
  stats.step_tokens.Observe(plan.num_tokens());
  stats.cow_copies += static_cast<int64_t>(plan.copies.size());
  stats.swapped_out_blocks += static_cast<int64_t>(plan.swap_outs.size());
  stats.swapped_in_blocks += static_cast<int64_t>(plan.swap_ins.size());
}

void LoopReport::CountResult(int64_t step_us, int64_t worker_us) {
  status_.stats.step_seconds.Observe(Seconds(step_us));
  status_.stats.worker_step_seconds.Observe(Seconds(worker_us));
}

void LoopReport::CountManagerPart(const WorkTime& time) {
  status_.stats.manager_step_seconds.Observe(Seconds(time.elapsed_us));
  status_.stats.manager_step_cpu_seconds.Observe(Seconds(time.cpu_us));
}

void LoopReport::CountPool(const WorkerPool& pool) {
  StepLoopStats& stats = status_.stats;
  const SchedulerCounts counts = pool.scheduler().counts();
  stats.preemptions += counts.preemptions - counted_.preemptions;
  stats.swap_outs += counts.swap_outs - counted_.swap_outs;
  stats.forks += counts.forks - counted_.forks;
  stats.recomputed_tokens += counts.recomputed_tokens - counted_.recomputed_tokens;
  counted_ = counts;
  stats.evictions += pool.blocks().num_evictions() - counted_evictions_;
  counted_evictions_ = pool.blocks().num_evictions();
}

void LoopReport::EndPool(const WorkerPool& pool) {
  CountPool(pool);
  counted_ = {};
  counted_evictions_ = 0;
}

void LoopReport::Update(const WorkerSession& session) {
  const WorkerLink& link = session.link();
  status_.is_ready = link.is_ready();
  status_.is_refused = absl::IsFailedPrecondition(link.last_error());
  status_.last_error =
      session.is_drained_by_worker() ? "the worker is draining" : std::string(link.last_error().message());
  status_.epoch = link.epoch();
  status_.steps = link.num_steps();
  status_.num_plans_in_flight = link.num_plans_in_flight();
  status_.last_step_us = session.last_step_us();
  status_.progress_us = link.progress_us();
  status_.ranks = link.ranks();
  const WorkerPool* const pool = session.pool();
  if (pool == nullptr) return;
  CountPool(*pool);
  const SchedulerCounts counts = pool->scheduler().counts();
  status_.blocks = pool->blocks().counts();
  status_.block_size = pool->blocks().block_size();
  status_.waiting_requests = counts.waiting;
  status_.running_requests = counts.running;
  status_.swapped_requests = counts.swapped;
  status_.expected_wait_us = wait_.Forecast().WaitUs(counts.waiting_tokens);
  status_.device = session.description().device;
  status_.numerics_fingerprint = session.description().numerics_fingerprint;
  status_.model_name = session.description().model_name;
  status_.generation = session.generation();
}

WorkerLoad LoopReport::Load(const WorkerSession& session, const LiveRequests& live, int64_t now_us) const {
  WorkerLoad load{.is_ready = session.is_ready() && !session.is_drained_by_worker(),
                  .has_tried = session.has_tried(),
                  .has_joined = session.last_step_us() > 0,
                  .may_return = session.MayReturn(now_us),
                  .generation = session.generation(),
                  .family = session.family(),
                  .is_overdue = session.IsOverdue(now_us),
                  .wanted_blocks = live.wanted_blocks(),
                  .num_requests = live.size(),
                  .num_restorable = live.num_restorable(),
                  .num_rows = live.num_rows()};
  if (session.pool() == nullptr) return load;
  load.groups = session.pool()->blocks().groups();
  load.num_blocks = status_.blocks.total;
  load.num_free_blocks = status_.blocks.free + status_.blocks.evictable;
  load.max_sequences = session.description().max_sequences;
  load.forecast = wait_.Forecast();
  load.overloaded_queues = wait_.overloaded_queues();
  const Scheduler& scheduler = session.pool()->scheduler();
  const SchedulerCounts counts = scheduler.counts();
  load.num_waiting = counts.waiting;
  load.is_on_trial = counts.suspects > 0;
  const SchedulingPolicy policy = scheduler.options().policy;
  const std::string* const tenant = scheduler.OnlyWaitingTenant();
  // The requests of one tenant are served by arrival.
  if (policy == SchedulingPolicy::kFairShare && tenant != nullptr) load.waiting_tenant = *tenant;
  if (ServesByArrival(policy) || load.waiting_tenant.has_value()) {
    load.forecast.waiting_tokens = counts.waiting_tokens;
  }
  return load;
}

}  // namespace quire
