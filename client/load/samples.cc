#include "client/load/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quire {

double Samples::Quantile(double p) const {
  if (values_.empty()) return 0;
  if (!is_sorted_) std::sort(values_.begin(), values_.end());
  is_sorted_ = true;
  const int rank = static_cast<int>(std::ceil(p * size()));
  return values_[std::clamp(rank, 1, size()) - 1];
}

double Samples::Mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / size();
}

}  // namespace quire
