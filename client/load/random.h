// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_RANDOM_H_
#define QUIRE_CLIENT_LOAD_RANDOM_H_

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

  // Returns a number in (0, 1).
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) / static_cast<double>(1ull << 53); }
  // Returns a number with the mean 1, such as the gaps between arrivals of a Poisson process.
  double Exponential() { return -std::log(Uniform()); }
  // Returns a number with the mean `shape`. The method is from Marsaglia and Tsang, "A simple method for generating
  // gamma variables" (2000). REQUIRES: shape > 0.
  double Gamma(double shape) {
    if (shape < 1) {
      const double power = std::pow(Uniform(), 1 / shape);
      return Gamma(shape + 1) * power;
    }
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = Normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(Uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }
  double Normal() { return std::sqrt(2 * Exponential()) * std::cos(2 * std::numbers::pi * Uniform()); }

 private:
  uint64_t state_;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_RANDOM_H_
