// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/step_model.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

// Number of steps that are remembered. At light load they are over in a second, and at full load they last for half a
// minute.
constexpr double kMemory = 1024;
constexpr double kLeastSteps = 32;
// When a number varies less than this among the steps (squared coefficient of variation), they say nothing about it.
constexpr double kLeastSpread = 0.05;
// The same for what one of the two numbers varies independently of the other one.
constexpr double kLeastIndependence = 0.05;

}  // namespace

void StepModel::Record(int num_requests, int num_tokens, double step_us) {
  const double r = num_requests;
  const double p = std::max(num_tokens - num_requests, 0);
  count_ = std::min(count_ + 1, kMemory);
  const auto average = [weight = 1 / count_](double* mean, double value) { *mean += weight * (value - *mean); };
  for (const auto& [mean, value] : {std::pair(&r_, r), {&p_, p}, {&t_, step_us}}) average(mean, value);
  for (const auto& [mean, value] : {std::pair(&rr_, r * r), {&pp_, p * p}, {&rp_, r * p}}) average(mean, value);
  for (const auto& [mean, value] : {std::pair(&rt_, r * step_us), {&pt_, p * step_us}}) average(mean, value);
  if (count_ >= kLeastSteps) Fit();
}

void StepModel::Fit() {
  const double var_r = rr_ - r_ * r_;
  const double var_p = pp_ - p_ * p_;
  const double cov_rp = rp_ - r_ * p_;
  const double cov_rt = rt_ - r_ * t_;
  const double cov_pt = pt_ - p_ * t_;
  if (var_r <= kLeastSpread * r_ * r_) return;
  if (var_p <= kLeastSpread * p_ * p_ || var_p == 0) {
    us_per_request_ = std::max((cov_rt - us_per_prompt_token_ * cov_rp) / var_r, 0.0);
    return;
  }
  const double determinant = var_r * var_p - cov_rp * cov_rp;
  if (determinant <= kLeastIndependence * var_r * var_p) return;
  us_per_request_ = std::max((cov_rt * var_p - cov_pt * cov_rp) / determinant, 0.0);
  us_per_prompt_token_ = std::max((cov_pt * var_r - cov_rt * cov_rp) / determinant, 0.0);
}

}  // namespace quire
