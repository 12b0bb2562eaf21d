#ifndef QUIRE_BENCH_RANDOM_H_
#define QUIRE_BENCH_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>

namespace quire {

// SplitMix64: the same numbers from the same seed on every machine.
class BenchRandom {
 public:
  explicit BenchRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  // In (0, 1).
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) / static_cast<double>(1ull << 53); }
  // Mean 1: the gaps between arrivals of a Poisson process.
  double Exponential() { return -std::log(Uniform()); }
  double Normal() { return std::sqrt(2 * Exponential()) * std::cos(2 * std::numbers::pi * Uniform()); }

 private:
  uint64_t state_;
};

}  // namespace quire

#endif  // QUIRE_BENCH_RANDOM_H_
