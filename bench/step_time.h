// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_STEP_TIME_H_
#define QUIRE_BENCH_STEP_TIME_H_

#include <vector>

#include "scheduler/step_plan.h"

namespace quire {

struct StepWork {
  double tokens = 0;
  double context_tokens = 0;  // The sum over the tokens of the positions that each attends to.
  double swapped_blocks = 0;
};

StepWork WorkOf(const StepPlan& plan);

// A model of the time that a worker needs for a step.
struct StepTime {
  double base_us = 0;
  double per_token_us = 0;
  double per_context_token_us = 0;
  double per_swapped_block_us = 0;

  double Seconds(const StepWork& work) const {
    return 1e-6 * (base_us + per_token_us * work.tokens + per_context_token_us * work.context_tokens +
                   per_swapped_block_us * work.swapped_blocks);
  }
};

struct TimedStep {
  StepWork work;
  double seconds = 0;
};

// Fits the model by least squares of the relative errors. A second fit leaves out the tenth of the steps that the first
// fit explains worst, because something else ran on the machine then. The time of a swap is not fitted. REQUIRES: steps
// of different work.
StepTime FitStepTime(const std::vector<TimedStep>& steps);

}  // namespace quire

#endif  // QUIRE_BENCH_STEP_TIME_H_
