// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_BYTE_NUMBERS_H_
#define QUIRE_KERNELS_CUDA_BYTE_NUMBERS_H_

#include <cstdint>

#include "kernels/cuda/int8_rounding.h"
#include "kernels/fp8.h"
#include "kernels/simt/simt_sm90.h"

namespace quire::cuda {

// Rounding to FP8 (E4M3), as int8_rounding.h rounds to whole numbers.
struct Fp8Rounding : ByteScale {
  static QUIRE_DEVICE Fp8Rounding Of(float largest) { return {ByteScale::Of(largest, kLargestFp8)}; }

  // Rounds four numbers to bytes of a word.
  QUIRE_DEVICE uint32_t RoundFour(const float* x) const {
    if (is_zero) return 0;
    return simt::PackFp8(x[0] * inverse, x[1] * inverse) | simt::PackFp8(x[2] * inverse, x[3] * inverse) << 16;
  }
};

// The numbers of 8 bits whose products the tensor cores add. A sum has 32 bits. kHasWarpGroups says whether warp groups
// multiply them, and not warps. kHasBlockScales says whether a row has a scale for each 128 columns, and not one scale.
struct Int8Numbers {
  using Rounding = Int8Rounding;
  using Sum = int32_t;
  static constexpr bool kHasWarpGroups = false;
  static constexpr bool kHasBlockScales = false;

  // Unsigned numbers, because a sum of other numbers must not be undefined when it is too large.
  static QUIRE_DEVICE Sum Add(Sum a, Sum b) { return static_cast<Sum>(uint32_t(a) + uint32_t(b)); }
};

// Only warp groups multiply them (simt_sm90.h). The tensor cores add products with fewer bits than float32 has, so a
// kernel must add the sums of few products itself.
struct Fp8Numbers {
  using Rounding = Fp8Rounding;
  using Sum = float;
  static constexpr bool kHasWarpGroups = true;
  static constexpr bool kHasBlockScales = false;

  static QUIRE_DEVICE Sum Add(Sum a, Sum b) { return a + b; }
};

// The same numbers, of which 128 columns of a token share a scale, and a block of 128 rows and 128 columns of weights.
// Products are scaled before the sums of different columns are added, so these are sums of results.
struct Fp8BlockNumbers : Fp8Numbers {
  static constexpr bool kHasBlockScales = true;
};
constexpr int kScaledRows = kFp8BlockSide;     // Number of rows of weights that share a scale.
constexpr int kScaledColumns = kFp8BlockSide;  // Number of columns of a token or of weights that share a scale.
constexpr int kScaleMultiple = 4;              // The size of arrays of scales is a multiple of it: 16 bytes.

// Returns the product of a rounded row and a row of weights with one scale each from the sum of the products of their
// numbers.
template <typename Sum>
QUIRE_DEVICE float ScaledSum(Sum sum, float x_scale, float w_scale) {
  return simt::RoundedProduct(static_cast<float>(sum), simt::RoundedProduct(x_scale, w_scale));
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_BYTE_NUMBERS_H_
