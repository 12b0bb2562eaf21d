#ifndef QUIRE_BENCH_SAMPLES_H_
#define QUIRE_BENCH_SAMPLES_H_

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
  double Mean() const;

 private:
  mutable std::vector<double> values_;
  mutable bool is_sorted_ = false;
};

// CPU time of this thread: other work on the machine disturbs it less than the time on the wall.
double ThreadCpuSeconds();

// The steady clock.
double WallSeconds();

// The clock for what runs on so many threads: CPU time of one, which works in the calling thread.
inline double SecondsOf(int num_threads) {
  return num_threads == 1 ? ThreadCpuSeconds() : WallSeconds();
}

}  // namespace quire

#endif  // QUIRE_BENCH_SAMPLES_H_
