// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_HISTOGRAM_H_
#define QUIRE_KV_MANAGER_ENGINE_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "base/check.h"

namespace quire {

// Counts observations by size. It is a plain value without memory of its own, so it is cheap to copy: a step loop
// publishes a copy in every round.
class Histogram {
 public:
  static constexpr size_t kMaxBounds = 23;

  // `bounds` ascend, live as long as the program, and are at most kMaxBounds many. Bucket i counts the values that are
  // at most bounds[i] and above bounds[i - 1]. The last bucket has no upper bound.
  explicit Histogram(absl::Span<const double> bounds) : bounds_(bounds) { QUIRE_CHECK_LE(bounds.size(), kMaxBounds); }

  void Observe(double value) {
    ++counts_[std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin()];
    sum_ += value;
  }

  // REQUIRES: the same bounds.
  void Merge(const Histogram& other) {
    QUIRE_CHECK_EQ(bounds_.data(), other.bounds_.data());
    for (size_t i = 0; i <= bounds_.size(); ++i) counts_[i] += other.counts_[i];
    sum_ += other.sum_;
  }

  absl::Span<const double> bounds() const { return bounds_; }
  absl::Span<const int64_t> counts() const { return {counts_.data(), bounds_.size() + 1}; }
  double sum() const { return sum_; }

 private:
  absl::Span<const double> bounds_;
  std::array<int64_t, kMaxBounds + 1> counts_ = {};  // [bounds_.size() + 1]
  double sum_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_HISTOGRAM_H_
