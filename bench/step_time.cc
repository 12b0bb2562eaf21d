// SPDX-License-Identifier: Apache-2.0

#include "bench/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace quire {
namespace {

constexpr int kNumTerms = 3;

std::array<double, kNumTerms> Terms(const StepWork& work) {
  return {1, work.tokens, work.context_tokens};
}

// Solves the normal equations by Gaussian elimination with pivots. Every step has the weight 1 / seconds.
StepTime Fit(const std::vector<TimedStep>& steps) {
  std::array<std::array<double, kNumTerms + 1>, kNumTerms> rows = {};
  for (const TimedStep& step : steps) {
    const std::array<double, kNumTerms> terms = Terms(step.work);
    const double weight = 1 / (step.seconds * step.seconds);
    for (int i = 0; i < kNumTerms; ++i) {
      for (int j = 0; j < kNumTerms; ++j) rows[i][j] += weight * terms[i] * terms[j];
      rows[i][kNumTerms] += weight * terms[i] * step.seconds;
    }
  }
  for (int i = 0; i < kNumTerms; ++i) {
    const auto pivot = std::max_element(rows.begin() + i, rows.end(),
                                        [i](const auto& a, const auto& b) { return std::abs(a[i]) < std::abs(b[i]); });
    std::swap(rows[i], *pivot);
    for (int k = 0; k < kNumTerms; ++k) {
      if (k == i) continue;
      const double factor = rows[k][i] / rows[i][i];
      for (int j = i; j <= kNumTerms; ++j) rows[k][j] -= factor * rows[i][j];
    }
  }
  const auto solution = [&](int i) { return 1e6 * rows[i][kNumTerms] / rows[i][i]; };
  return {.base_us = solution(0), .per_token_us = solution(1), .per_context_token_us = solution(2)};
}

}  // namespace

StepWork WorkOf(const StepPlan& plan) {
  StepWork work;
  for (const SequenceSlice& slice : plan.slices) {
    work.tokens += slice.num_tokens;
    work.context_tokens += slice.num_tokens * (slice.first_position + 0.5 * (slice.num_tokens + 1));
  }
  work.swapped_blocks = static_cast<double>(plan.swap_outs.size() + plan.swap_ins.size());
  return work;
}

StepTime FitStepTime(const std::vector<TimedStep>& steps) {
  const StepTime first = Fit(steps);
  std::vector<TimedStep> kept = steps;
  const auto error = [&](const TimedStep& step) { return std::abs(first.Seconds(step.work) / step.seconds - 1); };
  std::sort(kept.begin(), kept.end(), [&](const auto& a, const auto& b) { return error(a) < error(b); });
  kept.resize(kept.size() - kept.size() / 10);
  return Fit(kept);
}

}  // namespace quire
