// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_FP8_H_
#define QUIRE_KERNELS_FP8_H_

#include <cmath>
#include <cstdint>

#include "kernels/half_float.h"

namespace quire {

// FP8 as storage: E4M3 with a sign, four bits of an exponent and three of a fraction. It has no infinities, and 0x7f
// and 0xff are NaNs. The number of the largest magnitude is kLargestFp8.
constexpr float kLargestFp8 = 448;

// Rows and columns of a block in most checkpoints with scales of blocks; some products take no others.
constexpr int kFp8BlockSide = 128;

static inline float Fp8ToFloat(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return NAN;
  const float magnitude = exponent == 0 ? float(fraction) * 0x1p-9f
                                        : BitsToFloat(uint32_t(exponent + 120) << 23 | uint32_t(fraction) << 20);
  return bits & 0x80 ? -magnitude : magnitude;
}

// Rounds to the nearest number, ties to even. Values beyond the largest magnitude saturate.
static inline uint8_t FloatToFp8(float value) {
  const uint32_t bits = FloatToBits(value);
  const uint8_t sign = bits >> 24 & 0x80;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7f;
  if (magnitude >= FloatToBits(kLargestFp8)) return sign | 0x7e;
  // Multiples of 2^-9. The eighth is the smallest number with an exponent of its own.
  if (magnitude < FloatToBits(0x1p-6f)) return sign | uint8_t(std::nearbyintf(BitsToFloat(magnitude) * 0x1p9f));
  return sign | uint8_t(((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3));
}

}  // namespace quire

#endif  // QUIRE_KERNELS_FP8_H_
