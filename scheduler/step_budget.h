#ifndef QUIRE_SCHEDULER_STEP_BUDGET_H_
#define QUIRE_SCHEDULER_STEP_BUDGET_H_

#include <cstdint>

namespace quire {

// How many tokens a step may have to end within a target time. The model is that a step takes a fixed time plus a time
// per token. Both are fitted to the steps that have run, by least squares in which older steps count less and less, so
// the budget follows contexts that grow and machines that slow down. While all steps have about the same size, as when
// all of them are decodes, the time per token keeps its last value.
class StepBudget {
 public:
  // REQUIRES: target_us > 0, max_tokens > 0.
  StepBudget(int64_t target_us, int max_tokens);

  // A step of `num_tokens` > 0 tokens has taken `duration_us`.
  void Record(int num_tokens, int64_t duration_us);

  // 1 .. max_tokens.
  int tokens() const { return tokens_; }

 private:
  const double target_us_;
  const int max_tokens_;
  int tokens_;
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
