// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_INT8_ROUNDING_H_
#define QUIRE_KERNELS_CUDA_INT8_ROUNDING_H_

#include <cstdint>

#include "kernels/byte_scale.h"
#include "kernels/simt/simt.h"

namespace quire::cuda {

// Numbers that share a scale become numbers of 8 bits: q = round(x * (most / m)), where m is their largest magnitude,
// `most` is the largest number of 8 bits, and ties round to even.
struct ByteScale {
  float scale;    // m / most. It is NaN if m is.
  float inverse;  // most / m.
  bool is_zero;   // All numbers become 0, because m is NaN, or so small that most / m could be infinite.

  // `largest` is m, or NaN if there is an infinity or a NaN among the numbers.
  static QUIRE_DEVICE ByteScale Of(float largest, float most) {
    const bool is_zero = !(largest >= kSmallestMagnitude);  // A NaN gives true.
    return {is_zero ? 0 * largest : largest / most, is_zero ? 0 : most / largest, is_zero};
  }
};

// Rounding to whole numbers. The CPU has the same formula (kernels/cpu/quantize_kernel.h), so the bits are equal.
struct Int8Rounding : ByteScale {
  static QUIRE_DEVICE Int8Rounding Of(float largest) { return {ByteScale::Of(largest, 127)}; }

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
