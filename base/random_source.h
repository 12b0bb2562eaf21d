// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_RANDOM_SOURCE_H_
#define QUIRE_BASE_RANDOM_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <random>

namespace quire {

// Numbers for seeds and names. No two numbers of a process are equal, and two processes have different sequences. Not
// for secrets. Thread-safe.
class RandomSource {
 public:
  RandomSource() {
    std::random_device device;
    state_ = (static_cast<uint64_t>(device()) << 32) | device();
  }

  // SplitMix64 (Steele, Lea and Flood, 2014): a counter, and a mixing function that maps its values one to one.
  uint64_t Next() {
    uint64_t x = state_.fetch_add(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

 private:
  std::atomic<uint64_t> state_;
};

}  // namespace quire

#endif  // QUIRE_BASE_RANDOM_SOURCE_H_
