// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_STEP_BUDGET_H_
#define QUIRE_SCHEDULER_STEP_BUDGET_H_

#include <cstdint>

#include "scheduler/step_limit.h"

namespace quire {

// Learns from the steps that have run how long later steps take. The model is that a step takes a fixed time plus a
// time per token. Both are fitted by least squares in which older steps count less and less, so they follow contexts
// that grow and machines that slow down. While all steps have about the same size, as when all of them are decodes, the
// time per token keeps its last value.
//
// The target is the longest time that a step may take while sequences decode. A step in which nothing decodes delays
// nobody's next token. It delays only a request that comes meanwhile: that request waits for the plans that have been
// sent, which are at most two. So such a step may take kPromptStepUs, or the target if that is longer. With a prompt of
// 32,000 tokens under way, a short request waits for at most a second before its own prompt is computed. Where the
// fixed time is long, a step may also take kMostFixedTimes times as long as that, because otherwise most of the work
// would be done for the fixed time.
class StepBudget {
 public:
  static constexpr double kPromptStepUs = 500'000;
  static constexpr double kMostFixedTimes = 4;

  // REQUIRES: target_us > 0.
  explicit StepBudget(int64_t target_us);

  // A step of `num_tokens` > 0 tokens has taken `duration_us`.
  void Record(int num_tokens, int64_t duration_us);

  // Before the first step, the target is taken as the time of 256 tokens.
  const StepLimit& limit() const { return limit_; }

 private:
  const double target_us_;
  StepLimit limit_;
  double us_per_token_ = 0;  // 0 while it is not known.
  // Decaying sums over the steps: of 1, n, n^2, t and n * t, where a step of n tokens took the time t.
  double count_ = 0;
  double tokens_sum_ = 0;
  double squares_sum_ = 0;
  double time_sum_ = 0;
  double product_sum_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STEP_BUDGET_H_
