// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_SIMD_AVX512_H_
#define QUIRE_KERNELS_CPU_ISA_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/half_float.h"

// Only simd.h includes this file.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kRegisters = 32;  // Number of registers; each holds one Vec.

struct Vec {
  __m512 v;
};

QUIRE_INLINE __mmask16 FirstLanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1);
}

QUIRE_INLINE Vec Zero() {
  return {_mm512_setzero_ps()};
}
QUIRE_INLINE Vec Set(float x) {
  return {_mm512_set1_ps(x)};
}

QUIRE_INLINE Vec Load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
QUIRE_INLINE Vec Load(const BFloat16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
QUIRE_INLINE Vec Load(const Float16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// Loads the first n lanes, 0 <= n <= 16. The others are 0 and their memory is not touched.
QUIRE_INLINE Vec LoadFirst(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(FirstLanes(n), p)};
}
// Lane i is p[2 i].
QUIRE_INLINE Vec LoadEven(const BFloat16* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
// Lane i is p[2 i + 1].
QUIRE_INLINE Vec LoadOdd(const BFloat16* p) {
  const __m512i high_half = _mm512_set1_epi32(int(0xffff0000));
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high_half))};
}

QUIRE_INLINE void Store(float* p, Vec a) {
  _mm512_storeu_ps(p, a.v);
}
QUIRE_INLINE void StoreFirst(float* p, int n, Vec a) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), a.v);
}
QUIRE_INLINE void Store(BFloat16* p, Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i result = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(result));
}
QUIRE_INLINE void Store(Float16* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

QUIRE_INLINE Vec Add(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
QUIRE_INLINE Vec Sub(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
QUIRE_INLINE Vec Mul(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
QUIRE_INLINE Vec Div(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
QUIRE_INLINE Vec Sqrt(Vec a) {
  return {_mm512_sqrt_ps(a.v)};
}
// Returns a * b + c.
QUIRE_INLINE Vec Fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
// Returns the larger value, or b when either is NaN.
// Adds a * b to the sum.
QUIRE_INLINE void FmaInPlace(Vec a, Vec b, Vec* sum) {
  *sum = Fma(a, b, *sum);
}
QUIRE_INLINE Vec Max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}
QUIRE_INLINE Vec Min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}

// Bit i is set where the comparison holds for a[i] and b[i]. Comparisons with NaN are false.
QUIRE_INLINE uint32_t Greater(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ);
}
QUIRE_INLINE uint32_t GreaterEqual(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ);
}
QUIRE_INLINE uint32_t Equal(Vec a, Vec b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ);
}
// Lane i is b[i] where bit i is set, otherwise a[i].
QUIRE_INLINE Vec Select(uint32_t mask, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(mask), a.v, b.v)};
}

QUIRE_INLINE Vec Round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// Returns a * 2^n for whole n in [-126, 127].
QUIRE_INLINE Vec ScaleByPowerOfTwo(Vec a, Vec n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_mul_ps(a.v, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)))};
}
// Splits a into mantissa * 2^exponent with the mantissa in [sqrt(1/2), sqrt(2)), for normal a > 0.
QUIRE_INLINE void SplitExponent(Vec a, Vec* mantissa, Vec* exponent) {
  const __m512i offset = _mm512_sub_epi32(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x3f3504f3));
  const __m512i e = _mm512_srai_epi32(offset, 23);
  mantissa->v = _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(e, 23)));
  exponent->v = _mm512_cvtepi32_ps(e);
}

QUIRE_INLINE float First(Vec a) {
  return _mm512_cvtss_f32(a.v);
}

// Adds lanes i and i + 8, then i and i + 4, and so on.
QUIRE_INLINE float ReduceAdd(Vec a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
QUIRE_INLINE float ReduceMax(Vec a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// --- 16 unsigned integers ---

struct UVec {
  __m512i v;
};

QUIRE_INLINE UVec LoadU(const uint32_t* p) {
  return {_mm512_loadu_si512(p)};
}
QUIRE_INLINE void StoreU(uint32_t* p, UVec a) {
  _mm512_storeu_si512(p, a.v);
}
QUIRE_INLINE UVec SetU(uint32_t x) {
  return {_mm512_set1_epi32(int(x))};
}
// Returns first, first + 1, ...
QUIRE_INLINE UVec CountFrom(uint32_t first) {
  return {_mm512_add_epi32(_mm512_set1_epi32(int(first)),
                           _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))};
}
QUIRE_INLINE UVec Xor(UVec a, UVec b) {
  return {_mm512_xor_si512(a.v, b.v)};
}
// Computes the upper and lower halves of the 64-bit products.
QUIRE_INLINE void MultiplyWide(UVec a, uint32_t b, UVec* high, UVec* low) {
  const __m512i factor = _mm512_set1_epi32(int(b));
  const __m512i even = _mm512_mul_epu32(a.v, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), factor);
  high->v = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  low->v = _mm512_mullo_epi32(a.v, factor);
}
// Converts to the nearest floats.
QUIRE_INLINE Vec ToFloats(UVec a) {
  return {_mm512_cvtepu32_ps(a.v)};
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ISA_SIMD_AVX512_H_
