// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_HALF_FLOAT_H_
#define QUIRE_KERNELS_HALF_FLOAT_H_

#include <cstdint>
#include <cstring>

namespace quire {

// 16-bit floats as storage; arithmetic is always float32. Conversions to 16 bits round to the nearest value, ties to
// even, and keep infinities and NaN, as the hardware does.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// These functions are `static inline`, so that files compiled for different instruction sets never share one copy.
static inline float BitsToFloat(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline uint32_t FloatToBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline float ToFloat(float value) {
  return value;
}

static inline float ToFloat(BFloat16 value) {
  return BitsToFloat(uint32_t{value.bits} << 16);
}

static inline float ToFloat(Float16 value) {
  const uint32_t sign = uint32_t(value.bits & 0x8000) << 16;
  const uint32_t magnitude = value.bits & 0x7fff;
  if (magnitude >= 0x7c00) return BitsToFloat(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  // 2^112 moves the exponent bias from 15 to 127; the product is exact for normal and subnormal numbers alike.
  return BitsToFloat(sign | FloatToBits(BitsToFloat(magnitude << 13) * 0x1p112f));
}

static inline BFloat16 ToBFloat16(float value) {
  const uint32_t bits = FloatToBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {uint16_t(bits >> 16 | 0x40)};
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

static inline Float16 ToFloat16(float value) {
  const uint32_t bits = FloatToBits(value);
  const uint16_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff))};
  if (magnitude >= 0x477ff000) return {uint16_t(sign | 0x7c00)};  // 65520 and above round to infinity.
  if (magnitude < 0x38800000) {
    // Subnormal result: the addition of 0.5 rounds the value and leaves it in the low bits, in units of 2^-24.
    const uint32_t shifted = FloatToBits(BitsToFloat(magnitude) + 0.5f);
    return {uint16_t(sign | (shifted - 0x3f000000))};
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return {uint16_t(sign | ((rounded - 0x38000000) >> 13))};
}

static inline void FromFloat(float value, float* to) {
  *to = value;
}
static inline void FromFloat(float value, BFloat16* to) {
  *to = ToBFloat16(value);
}
static inline void FromFloat(float value, Float16* to) {
  *to = ToFloat16(value);
}

}  // namespace quire

#endif  // QUIRE_KERNELS_HALF_FLOAT_H_
