// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ROUNDING_H_
#define QUIRE_KERNELS_CPU_ROUNDING_H_

namespace quire::cpu {

constexpr int CeilDiv(int a, int b) {
  return (a + b - 1) / b;
}

// Returns the next multiple of `step`.
constexpr int RoundUp(int a, int step) {
  return CeilDiv(a, step) * step;
}

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ROUNDING_H_
