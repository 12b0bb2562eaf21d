// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_FP8_PRODUCTS_H_
#define QUIRE_KERNELS_CPU_LINEAR_FP8_PRODUCTS_H_

#include <cstdint>

#include "kernels/cpu/isa/simd.h"

// Conversion of weights of FP8 (E4M3) to bfloat16, which is exact. 64 bytes of a panel hold four consecutive k of 16
// columns; see weight_panels.h.
//
//   WeightPairs  two consecutive k of 16 columns as bfloat16: [16][2].
//
// A number with the magnitude m (7 bits) has the bits 0x3c00 + 16 * m as bfloat16, if it is not subnormal. Vector code
// looks up the high byte of that by the upper four bits of the number, and corrects both bytes of magnitudes below 8
// by tables. The index into these tables is m + 112: it has its highest bit, which makes the result 0, if m > 15.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

#if defined(__AVX2__)

// The high byte for each upper half of a number, and the differences between the bytes of subnormal numbers and the
// formula above.
alignas(16) constexpr uint8_t kFp8High[16] = {0x3c, 0x3d, 0x3e, 0x3f, 0x40, 0x41, 0x42, 0x43,
                                              0xbc, 0xbd, 0xbe, 0xbf, 0xc0, 0xc1, 0xc2, 0xc3};
alignas(16) constexpr uint8_t kFp8HighLess[16] = {0x3c, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
alignas(16) constexpr uint8_t kFp8LowMore[16] = {0, 0xf0, 0x60, 0x90, 0xc0, 0xd0, 0xe0, 0xf0, 0, 0, 0, 0, 0, 0, 0, 0};

#endif

#if defined(__AVX512F__)

struct WeightPairs {
  __m512i v;
};

QUIRE_INLINE void StorePairs(BFloat16* p, WeightPairs a) {
  _mm512_storeu_si512(p, a.v);
}
QUIRE_INLINE void SplitPairs(WeightPairs pairs, Vec* even, Vec* odd) {
  even->v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs.v, 16));
  odd->v = _mm512_castsi512_ps(_mm512_and_si512(pairs.v, _mm512_set1_epi32(int(0xffff0000))));
}
QUIRE_INLINE __m512i Fp8Table(const uint8_t (&table)[16]) {
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}
QUIRE_INLINE void LoadFp8(const uint8_t* p, WeightPairs* first, WeightPairs* second) {
  const __m512i bytes = _mm512_loadu_si512(p), low_half = _mm512_set1_epi8(15);
  const __m512i magnitude = _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f));
  const __m512i index = _mm512_add_epi8(magnitude, _mm512_set1_epi8(112));
  const __m512i upper = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_half);
  const __m512i high = _mm512_sub_epi8(_mm512_shuffle_epi8(Fp8Table(kFp8High), upper),
                                       _mm512_shuffle_epi8(Fp8Table(kFp8HighLess), index));
  const __m512i low = _mm512_add_epi8(_mm512_andnot_si512(low_half, _mm512_slli_epi16(bytes, 4)),
                                      _mm512_shuffle_epi8(Fp8Table(kFp8LowMore), index));
  first->v = _mm512_unpacklo_epi8(low, high);
  second->v = _mm512_unpackhi_epi8(low, high);
}

#elif defined(__AVX2__)

struct WeightPairs {
  __m256i lo, hi;
};

QUIRE_INLINE void StorePairs(BFloat16* p, WeightPairs a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), a.hi);
}
QUIRE_INLINE void SplitPairs(WeightPairs pairs, Vec* even, Vec* odd) {
  const __m256i high_half = _mm256_set1_epi32(int(0xffff0000));
  *even = {_mm256_castsi256_ps(_mm256_slli_epi32(pairs.lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(pairs.hi, 16))};
  *odd = {_mm256_castsi256_ps(_mm256_and_si256(pairs.lo, high_half)),
          _mm256_castsi256_ps(_mm256_and_si256(pairs.hi, high_half))};
}
QUIRE_INLINE __m256i Fp8Table(const uint8_t (&table)[16]) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}
// The same for half of a line: eight columns.
QUIRE_INLINE void LoadFp8(const uint8_t* p, __m256i* first, __m256i* second) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), low_half = _mm256_set1_epi8(15);
  const __m256i magnitude = _mm256_and_si256(bytes, _mm256_set1_epi8(0x7f));
  const __m256i index = _mm256_add_epi8(magnitude, _mm256_set1_epi8(112));
  const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low_half);
  const __m256i high = _mm256_sub_epi8(_mm256_shuffle_epi8(Fp8Table(kFp8High), upper),
                                       _mm256_shuffle_epi8(Fp8Table(kFp8HighLess), index));
  const __m256i low = _mm256_add_epi8(_mm256_andnot_si256(low_half, _mm256_slli_epi16(bytes, 4)),
                                      _mm256_shuffle_epi8(Fp8Table(kFp8LowMore), index));
  *first = _mm256_unpacklo_epi8(low, high);
  *second = _mm256_unpackhi_epi8(low, high);
}
QUIRE_INLINE void LoadFp8(const uint8_t* p, WeightPairs* first, WeightPairs* second) {
  LoadFp8(p, &first->lo, &second->lo);
  LoadFp8(p + 32, &first->hi, &second->hi);
}

#else

struct WeightPairs {
  BFloat16 v[2 * kLanes];
};

QUIRE_INLINE void StorePairs(BFloat16* p, const WeightPairs& a) {
  memcpy(p, &a, sizeof(a));
}
QUIRE_INLINE void SplitPairs(const WeightPairs& pairs, Vec* even, Vec* odd) {
  *even = LoadEven(pairs.v);
  *odd = LoadOdd(pairs.v);
}
// The product moves the bias of the exponent from 127 to 7, and is exact for normal and subnormal numbers alike.
QUIRE_INLINE BFloat16 Fp8ToBFloat16(uint8_t number) {
  const uint32_t bits = FloatToBits(BitsToFloat(uint32_t(number & 0x7f) << 20) * 0x1p120f);
  return {uint16_t(bits >> 16 | uint32_t(number & 0x80) << 8)};
}
QUIRE_INLINE void LoadFp8(const uint8_t* p, WeightPairs* first, WeightPairs* second) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 8; ++j) {
      first->v[i * 8 + j] = Fp8ToBFloat16(p[i * 16 + j]);
      second->v[i * 8 + j] = Fp8ToBFloat16(p[i * 16 + 8 + j]);
    }
  }
}

#endif

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_FP8_PRODUCTS_H_
