#ifndef QUIRE_SCHEDULER_STEP_BUDGET_H_
#define QUIRE_SCHEDULER_STEP_BUDGET_H_

#include <cstdint>

namespace quire {

// How many tokens a step may have to end in a target time. It takes the time of a step for a fixed part and a part per
// token, and fits both to the steps that have run by least squares in which older steps count less and less: so it
// follows contexts that grow and machines that slow down. While all steps are of about one size, as with decodes only,
// the part per token stays what it was.
class StepBudget {
 public:
  // REQUIRES: target_us > 0, max_tokens > 0.
  StepBudget(int64_t target_us, int max_tokens);

  // A step of `num_tokens` > 0 tokens has taken so long.
  void Record(int num_tokens, int64_t duration_us);

  // 1 .. max_tokens.
  int tokens() const { return tokens_; }

 private:
  const double target_us_;
  const int max_tokens_;
  int tokens_;
  double us_per_token_ = 0;  // 0: not known yet.
  // Decaying sums over steps of 1, n, n^2, t and n * t.
  double count_ = 0;
  double tokens_sum_ = 0;
  double squares_sum_ = 0;
  double time_sum_ = 0;
  double product_sum_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STEP_BUDGET_H_
