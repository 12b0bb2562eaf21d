// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_FP8_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_FP8_KERNEL_H_

#include "kernels/cpu/linear/fp8_products.h"
#include "kernels/cpu/linear/linear_converted_kernel.h"

// Products by weights of FP8.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

struct Fp8Numbers {
  static constexpr int kLineColumns = kFp8LineColumns;
  static constexpr int kLineBytes = kFp8LineBytes;
  using Place = GroupPlace<kFp8HeaderBytes>;
  static QUIRE_INLINE Place PlaceOf(const uint8_t* panel, int group, int group_columns) {
    return {panel + int64_t{group} * Fp8GroupBytes(group_columns)};
  }

  struct Group {};
  struct Line {
    WeightPairs low, high;

    template <int kPair>
    QUIRE_INLINE WeightPairs Pair(const Group& /*group*/) const {
      return kPair == 0 ? low : high;
    }
  };
  static QUIRE_INLINE Group ReadGroup(const Place& /*place*/, int /*vec*/) { return {}; }
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

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_FP8_KERNEL_H_
