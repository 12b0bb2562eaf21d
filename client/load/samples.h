// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_SAMPLES_H_
#define QUIRE_CLIENT_LOAD_SAMPLES_H_

#include <vector>

namespace quire {

// Measured values of one quantity.
class Samples {
 public:
  void Add(double value) {
    values_.push_back(value);
    is_sorted_ = false;
  }

  int size() const { return static_cast<int>(values_.size()); }

  // The value at `p` * (size() - 1) of the sorted ones, linear in between as numpy's default; 0 without values.
  double Quantile(double p) const;
  double Median() const { return Quantile(0.5); }
  double Max() const { return Quantile(1); }
  double Mean() const;
  // The standard deviation of the population, which divides by size() and not by size() - 1. 0 without values.
  double StandardDeviation() const;
  int CountAbove(double limit) const;

 private:
  mutable std::vector<double> values_;
  mutable bool is_sorted_ = false;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_SAMPLES_H_
