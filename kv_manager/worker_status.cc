#include "kv_manager/worker_status.h"

namespace quire {

void StepLoopStats::Add(const StepLoopStats& other) {
  for (size_t i = 0; i < finished.size(); ++i) finished[i] += other.finished[i];
  for (int64_t StepLoopStats::*count :
       {&StepLoopStats::failed, &StepLoopStats::refused_never_fits, &StepLoopStats::refused_queue_full,
        &StepLoopStats::refused_worker_lost, &StepLoopStats::prompt_tokens, &StepLoopStats::generated_tokens,
        &StepLoopStats::cow_copies, &StepLoopStats::worker_losses, &StepLoopStats::preemptions,
        &StepLoopStats::recomputed_tokens, &StepLoopStats::cached_tokens, &StepLoopStats::forks,
        &StepLoopStats::evictions, &StepLoopStats::swap_outs}) {
    this->*count += other.*count;
  }
  for (Histogram StepLoopStats::*histogram :
       {&StepLoopStats::queue_seconds, &StepLoopStats::first_token_seconds, &StepLoopStats::inter_token_seconds,
        &StepLoopStats::request_seconds, &StepLoopStats::step_seconds, &StepLoopStats::worker_step_seconds,
        &StepLoopStats::plan_seconds, &StepLoopStats::step_tokens}) {
    (this->*histogram).Merge(other.*histogram);
  }
}

}  // namespace quire
