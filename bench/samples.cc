#include "bench/samples.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
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

double ThreadCpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace quire
