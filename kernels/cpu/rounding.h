// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ROUNDING_H_
#define QUIRE_KERNELS_CPU_ROUNDING_H_

#include <cstddef>

#include "kernels/ceil_div.h"

namespace quire::cpu {

// Returns the next multiple of `step`.
constexpr int RoundUp(int a, int step) {
  return CeilDiv(a, step) * step;
}

// Returns the bytes of a matrix [num_rows, num_cols], which may have more elements than fit into an int.
constexpr size_t MatrixBytes(int num_rows, int num_cols, size_t element_bytes) {
  return size_t(num_rows) * size_t(num_cols) * element_bytes;
}

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ROUNDING_H_
