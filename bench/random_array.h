// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_RANDOM_ARRAY_H_
#define QUIRE_BENCH_RANDOM_ARRAY_H_

#include <cstdint>
#include <vector>

#include "kernels/half_float.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire::cuda {

// Device memory filled with normally distributed random numbers in bfloat16. They repeat after 2^20 numbers.
class RandomArray {
 public:
  RandomArray(Device* device, size_t size) : array_(device, size) {
    static const std::vector<uint16_t> pattern = [] {
      Random random(1);
      std::vector<uint16_t> bits(size_t{1} << 20);
      for (uint16_t& value : bits) value = ToBFloat16(random.Normal()).bits;
      return bits;
    }();
    array_.Upload(pattern);
  }
  uint16_t* data() const { return array_.data(); }

 private:
  DeviceArray<uint16_t> array_;
};

// Several random arrays that are used in turn.
class RandomArrays {
 public:
  RandomArrays(Device* device, int count, size_t size) : size_(size), count_(count), array_(device, count * size) {}
  uint16_t* operator[](int i) const { return array_.data() + (i % count_) * size_; }

 private:
  const size_t size_;
  const int count_;
  RandomArray array_;
};

}  // namespace quire::cuda

#endif  // QUIRE_BENCH_RANDOM_ARRAY_H_
