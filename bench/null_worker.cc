// SPDX-License-Identifier: Apache-2.0

#include "bench/null_worker.h"

#include <algorithm>
#include <cmath>

namespace quire {

StepResult NullWorker::Execute(const StepPlan& plan) {
  const auto num_candidates = [&](RowId row) -> int& {
    if (num_candidates_.size() <= Value(row)) num_candidates_.resize(Value(row) + 1, 0);
    return num_candidates_[Value(row)];
  };
  for (const SequenceStart& start : plan.starts) num_candidates(start.row) = start.sampling.num_candidates;
  for (const SequenceFork& fork : plan.forks) {
    const int of_parent = num_candidates(fork.parent);
    num_candidates(fork.row) = of_parent;
  }
  StepResult result;
  result.step = plan.step;
  result.slices.reserve(plan.slices.size());
  for (const SequenceSlice& slice : plan.slices) {
    SliceResult& out = result.slices.emplace_back();
    out.sampled = slice.sample;
    if (!slice.sample) continue;
    if (const int count = num_candidates(slice.row); count > 0) {
      out.candidates = DrawCandidates(count);
    } else {
      out.token.token = NextToken();
    }
  }
  return result;
}

std::vector<TokenLogprob> NullWorker::DrawCandidates(int count) {
  const double p = std::min(0.1 + 0.9 * random_.Uniform(), 0.999999);
  std::vector<TokenLogprob> candidates;
  for (int i = 0; i < count; ++i) {
    candidates.push_back({NextToken(), static_cast<float>(std::log(p) + i * std::log1p(-p))});
  }
  return candidates;
}

}  // namespace quire
