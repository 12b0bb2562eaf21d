// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_INT8_ROUNDING_H_
#define QUIRE_KERNELS_CUDA_INT8_ROUNDING_H_

#include <cstdint>

#include "kernels/simt/simt.h"

namespace quire::cuda {

// How numbers that share a scale become whole numbers of 8 bits: q = round(x * (127 / m)), where m is their largest
// magnitude and ties round to even. The CPU has the same formula (kernels/cpu/quantize_kernel.h), so the bits are
// equal.
struct Int8Rounding {
  float scale;    // m / 127. It is NaN if m is.
  float inverse;  // 127 / m.
  bool is_zero;   // All numbers become 0, because m is NaN, or so small that 127 / m could be infinite.

  // `largest` is m, or NaN if there is an infinity or a NaN among the numbers.
  static QUIRE_DEVICE Int8Rounding Of(float largest) {
    constexpr float kSmallestMagnitude = 0x1p-100f;
    const bool is_zero = !(largest >= kSmallestMagnitude);  // Also when it is NaN.
    return {is_zero ? 0 * largest : largest / 127.0f, is_zero ? 0 : 127.0f / largest, is_zero};
  }

  // Rounds four numbers to bytes of a word.
  QUIRE_DEVICE uint32_t RoundFour(const float* x) const {
    if (is_zero) return 0;
    uint32_t word = 0;
    QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
      word |= (static_cast<uint32_t>(simt::RoundToInt(x[i] * inverse)) & 0xff) << (8 * i);
    }
    return word;
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_INT8_ROUNDING_H_
