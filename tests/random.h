// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_RANDOM_H_
#define QUIRE_TESTS_RANDOM_H_

#include <cstdint>

namespace quire {

// SplitMix64: the same numbers from the same seed on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  // Uniform in [low, high].
  int Between(int low, int high) { return low + static_cast<int>(Next() % (high - low + 1)); }

  // Uniform in [0, n).
  int Below(int n) { return static_cast<int>(Next() % n); }

  bool OneIn(int n) { return Next() % n == 0; }

 private:
  uint64_t state_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_RANDOM_H_
