// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/worker_status.h"

namespace quire {

void StepLoopStats::Add(const StepLoopStats& other) {
  for (size_t i = 0; i < finished.size(); ++i) finished[i] += other.finished[i];
  displaced += other.displaced;
  restored_requests += other.restored_requests;
  moved_requests += other.moved_requests;
  rebalanced_requests += other.rebalanced_requests;
  numerics_changes += other.numerics_changes;
  request_pins += other.request_pins;
  failed_request_pins += other.failed_request_pins;
  for (int64_t StepLoopStats::*count :
       {&StepLoopStats::failed, &StepLoopStats::refused_never_fits, &StepLoopStats::refused_queue_full,
        &StepLoopStats::refused_worker_lost, &StepLoopStats::refused_overloaded, &StepLoopStats::prompt_tokens,
        &StepLoopStats::generated_tokens, &StepLoopStats::cow_copies, &StepLoopStats::worker_losses,
        &StepLoopStats::preemptions, &StepLoopStats::recomputed_tokens, &StepLoopStats::cached_tokens,
        &StepLoopStats::forks, &StepLoopStats::evictions, &StepLoopStats::swap_outs, &StepLoopStats::started_tokens,
        &StepLoopStats::interruptions, &StepLoopStats::swapped_out_blocks, &StepLoopStats::swapped_in_blocks}) {
    this->*count += other.*count;
  }
  for (Histogram StepLoopStats::*histogram : {&StepLoopStats::queue_seconds,
                                              &StepLoopStats::first_token_seconds,
                                              &StepLoopStats::inter_token_seconds,
                                              &StepLoopStats::request_seconds,
                                              &StepLoopStats::prefill_seconds,
                                              &StepLoopStats::decode_seconds,
                                              &StepLoopStats::request_prompt_tokens,
                                              &StepLoopStats::request_generated_tokens,
                                              &StepLoopStats::step_seconds,
                                              &StepLoopStats::worker_step_seconds,
                                              &StepLoopStats::plan_seconds,
                                              &StepLoopStats::manager_step_seconds,
                                              &StepLoopStats::manager_step_cpu_seconds,
                                              &StepLoopStats::step_tokens,
                                              &StepLoopStats::request_longest_output,
                                              &StepLoopStats::request_max_tokens,
                                              &StepLoopStats::request_outputs,
                                              &StepLoopStats::request_computed_tokens,
                                              &StepLoopStats::running_seconds,
                                              &StepLoopStats::token_seconds}) {
    (this->*histogram).Merge(other.*histogram);
  }
  if (tenants.size() < other.tenants.size()) tenants.resize(other.tenants.size());
  for (size_t i = 0; i < other.tenants.size(); ++i) {
    tenants[i].requests += other.tenants[i].requests;
    tenants[i].prompt_tokens += other.tenants[i].prompt_tokens;
    tenants[i].generated_tokens += other.tenants[i].generated_tokens;
    tenants[i].refusals += other.tenants[i].refusals;
  }
}

}  // namespace quire
