// SPDX-License-Identifier: Apache-2.0

#include "client/load/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quire {

double Samples::Quantile(double p) const {
  if (values_.empty()) return 0;
  if (!is_sorted_) std::sort(values_.begin(), values_.end());
  is_sorted_ = true;
  const double position = std::clamp(p, 0.0, 1.0) * (size() - 1);
  const int below = static_cast<int>(position);
  const int above = std::min(below + 1, size() - 1);
  return values_[below] + (position - below) * (values_[above] - values_[below]);
}

double Samples::Mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / size();
}

double Samples::StandardDeviation() const {
  if (values_.empty()) return 0;
  const double mean = Mean();
  double squares = 0;
  for (const double value : values_) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / size());
}

int Samples::CountAbove(double limit) const {
  return static_cast<int>(std::count_if(values_.begin(), values_.end(), [&](double value) { return value > limit; }));
}

}  // namespace quire
