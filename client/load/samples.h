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

  // The smallest value that at least a share `p` of all do not exceed; 0 without values.
  double Quantile(double p) const;
  double Median() const { return Quantile(0.5); }
  double Max() const { return Quantile(1); }
  double Mean() const;

 private:
  mutable std::vector<double> values_;
  mutable bool is_sorted_ = false;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_SAMPLES_H_
