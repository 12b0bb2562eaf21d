// SPDX-License-Identifier: Apache-2.0

#include "serving/read_budget.h"

#include <algorithm>

namespace quire {

size_t ReadBudget::BytesToRead(int64_t now_us) {
  const int64_t passed_ms = (now_us - grown_at_us_) / 1000;
  grown_at_us_ += passed_ms * 1000;
  if (free_us_ < kFreeUs) free_us_ = std::min(kFreeUs, free_us_ + std::min(passed_ms, kFreeUs) * kFreeUsPerMs);
  if (free_us_ <= 0) return 0;
  if (bytes_ > 0) {
    const double seen = static_cast<double>(bytes_) / static_cast<double>(std::max<int64_t>(work_us_, 1));
    bytes_per_us_ = std::min(seen, 2 * bytes_per_us_);
    bytes_ = work_us_ = 0;
  }
  const double bytes = bytes_per_us_ * static_cast<double>(std::min(free_us_, kTurnUs));
  return static_cast<size_t>(std::clamp(bytes, double{kMinReadBytes}, double{kMaxReadBytes}));
}

void ReadBudget::AddWork(int64_t work_us) {
  work_us_ += work_us;
  free_us_ -= work_us;
}

}  // namespace quire
