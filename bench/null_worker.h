#ifndef QUIRE_BENCH_NULL_WORKER_H_
#define QUIRE_BENCH_NULL_WORKER_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "client/load/random.h"
#include "scheduler/step_plan.h"

namespace quire {

// A worker that computes nothing. A slice that samples draws a token by counting, so no two requests generate the same
// text. Rows of a beam search get the candidates of a synthetic model: the probability of rank k is p * (1 - p)^(k - 1)
// with p drawn anew for every row and step, uniformly from [0.1, 1). So the likeliest token has 0.55 on average, and
// most steps have one clear favourite while some have many, as with language models.
class NullWorker {
 public:
  static constexpr int kVocabSize = 1 << 30;

  StepResult Execute(const StepPlan& plan);

 private:
  std::vector<TokenLogprob> DrawCandidates(int count);
  TokenId NextToken() { return static_cast<TokenId>(num_drawn_++ % kVocabSize); }

  std::vector<int> num_candidates_;  // By row.
  uint64_t num_drawn_ = 0;
  BenchRandom random_{1};
};

}  // namespace quire

#endif  // QUIRE_BENCH_NULL_WORKER_H_
