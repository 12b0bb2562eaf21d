// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_FP8_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_FP8_KERNEL_H_

#include "kernels/cpu/fp8_products.h"
#include "kernels/cpu/linear_converted_kernel.h"

// Products by weights of FP8.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

struct Fp8Numbers {
  static constexpr int kHeaderBytes = kFp8HeaderBytes;
  static constexpr int kLineColumns = kFp8LineColumns;
  static constexpr int GroupBytes(int group) { return Fp8GroupBytes(group); }

  struct Group {};
  struct Line {
    WeightPairs low, high;

    template <int kPair>
    QUIRE_INLINE WeightPairs Pair(const Group& /*group*/) const {
      return kPair == 0 ? low : high;
    }
  };
  static QUIRE_INLINE Group ReadGroup(const uint8_t* /*group*/, int /*vec*/) { return {}; }
  static QUIRE_INLINE Line ReadLine(const uint8_t* p) {
    Line line;
    LoadFp8(p, &line.low, &line.high);
    return line;
  }
};

template <typename X>
void LinearFp8(const LinearTask& task) {
  LinearConverted<X, Fp8Numbers>(task);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_FP8_KERNEL_H_
