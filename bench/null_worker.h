// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_NULL_WORKER_H_
#define QUIRE_BENCH_NULL_WORKER_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "client/load/random.h"
#include "scheduler/step_plan.h"

namespace quire {

// A worker that computes nothing. Sampled tokens are taken from a counter, so no two requests generate the same text.
// Rows of a beam search get the candidates of a synthetic model: rank k has the probability p * (1 - p)^(k - 1), and p
// is drawn uniformly from [0.1, 1) for every row and step. The likeliest token has 0.55 on average. As in language
// models, most steps have one clear favourite and some have many.
class NullWorker {
 public:
  static constexpr int kVocabSize = 1 << 30;

  StepResult Execute(const StepPlan& plan);

 private:
  std::vector<TokenLogprob> DrawCandidates(int count);
  TokenId NextToken() { return static_cast<TokenId>(num_drawn_++ % kVocabSize); }

  std::vector<int> num_candidates_;  // [rows of the step]
  uint64_t num_drawn_ = 0;
  BenchRandom random_{1};
};

}  // namespace quire

#endif  // QUIRE_BENCH_NULL_WORKER_H_
