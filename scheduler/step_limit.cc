// SPDX-License-Identifier: Apache-2.0

#include "scheduler/step_limit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire {
namespace {

constexpr double kMostTokens = std::numeric_limits<int>::max() / 2;

// Returns the x > 0 for which x^3 / (1 + x) = k. REQUIRES: k > 0.
double SolveForStretch(double k) {
  // f(x) = x^3 - k * (1 + x) is convex behind its only positive root, and this value is not below the root. So Newton's
  // method comes down to the root.
  double x = std::cbrt(k) + std::sqrt(k);
  for (int i = 0; i < 20; ++i) x -= (x * x * x - k * (1 + x)) / (3 * x * x - k);
  return x;
}

}  // namespace

int StepLimit::MaxTokens(const StepDemand& demand) const {
  if (us_per_token <= 0) return static_cast<int>(kMostTokens);
  const auto tokens_within = [&](double us) { return (us - fixed_us) / us_per_token; };
  const auto at_least_minimum = [&](double prompt_tokens) {
    return std::clamp<double>(prompt_tokens, kMinPromptTokens, kMostTokens);
  };
  const double num_decodes = demand.num_decodes;
  if (demand.num_decodes == 0) return static_cast<int>(at_least_minimum(tokens_within(max_prompt_step_us)));
  double chunk = tokens_within(max_step_us) - num_decodes;
  if (demand.num_prompts > 0 && demand.uncomputed_tokens > 0) {
    const double decode_step_us = fixed_us + us_per_token * num_decodes;
    const double prompt_steps = static_cast<double>(demand.prompt_tokens) * us_per_token / decode_step_us;
    const double stretch =
        SolveForStretch(2 * kFirstTokenWeight * (demand.num_prompts + 1) * prompt_steps / num_decodes);
    chunk = at_least_minimum(std::min(chunk, stretch * decode_step_us / us_per_token));
    const double uncomputed = static_cast<double>(demand.uncomputed_tokens);
    chunk = std::ceil(uncomputed / std::ceil(uncomputed / chunk));
  }
  return static_cast<int>(std::min(num_decodes + at_least_minimum(chunk), kMostTokens));
}

}  // namespace quire
