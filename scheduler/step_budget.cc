// SPDX-License-Identifier: Apache-2.0

#include "scheduler/step_budget.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// The weight of everything known is multiplied by this after each step, so about 30 steps are remembered.
constexpr double kDecay = 0.97;

// When the sizes of the steps vary less than this (squared coefficient of variation), they say nothing about the time
// per token.
constexpr double kLeastSpread = 0.1;

constexpr double kFirstTokens = 256;

}  // namespace

StepBudget::StepBudget(int64_t target_us) : target_us_(static_cast<double>(target_us)) {
  QUIRE_CHECK_GT(target_us, 0);
  limit_ = {.us_per_token = target_us_ / kFirstTokens, .max_step_us = target_us_, .max_prompt_step_us = target_us_};
}

void StepBudget::Record(int num_tokens, int64_t duration_us) {
  const double n = num_tokens;
  const double t = static_cast<double>(duration_us);
  count_ = kDecay * count_ + 1;
  tokens_sum_ = kDecay * tokens_sum_ + n;
  squares_sum_ = kDecay * squares_sum_ + n * n;
  time_sum_ = kDecay * time_sum_ + t;
  product_sum_ = kDecay * product_sum_ + n * t;

  const double mean_tokens = tokens_sum_ / count_;
  const double mean_time = time_sum_ / count_;
  const double variance = squares_sum_ / count_ - mean_tokens * mean_tokens;
  const double covariance = product_sum_ / count_ - mean_tokens * mean_time;
  if (variance > kLeastSpread * mean_tokens * mean_tokens && covariance > 0) us_per_token_ = covariance / variance;
  // A fixed time below 0 is noise. Before the time per token is known, the whole time of a step counts as that of its
  // tokens.
  const double most = mean_time / mean_tokens;
  limit_.us_per_token = us_per_token_ > 0 ? std::min(us_per_token_, most) : most;
  limit_.fixed_us = std::max(mean_time - limit_.us_per_token * mean_tokens, 0.0);
  limit_.max_prompt_step_us = std::max({target_us_, kPromptStepUs, kMostFixedTimes * limit_.fixed_us});
}

}  // namespace quire
