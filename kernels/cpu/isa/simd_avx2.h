// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_SIMD_AVX2_H_
#define QUIRE_KERNELS_CPU_ISA_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/half_float.h"

// Only simd.h includes this file. simd_avx512.h describes the operations.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kRegisters = 8;  // Number of Vecs that fit in registers: sixteen registers of half a Vec each.

struct Vec {
  __m256 lo, hi;
};

// Sets all bits of the first n of 8 lanes; n may be negative or above 8.
QUIRE_INLINE __m256i FirstLanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
QUIRE_INLINE __m256 WidenBFloat16(const BFloat16* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
QUIRE_INLINE __m256 WidenFloat16(const Float16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

QUIRE_INLINE Vec Zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
QUIRE_INLINE Vec Set(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

QUIRE_INLINE Vec Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
QUIRE_INLINE Vec Load(const BFloat16* p) {
  return {WidenBFloat16(p), WidenBFloat16(p + 8)};
}
QUIRE_INLINE Vec Load(const Float16* p) {
  return {WidenFloat16(p), WidenFloat16(p + 8)};
}
QUIRE_INLINE Vec LoadFirst(const float* p, int n) {
  return {_mm256_maskload_ps(p, FirstLanes(n)), _mm256_maskload_ps(p + 8, FirstLanes(n - 8))};
}
QUIRE_INLINE __m256 EvenBFloat16(const BFloat16* p) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
QUIRE_INLINE __m256 OddBFloat16(const BFloat16* p) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(int(0xffff0000))));
}
QUIRE_INLINE Vec LoadEven(const BFloat16* p) {
  return {EvenBFloat16(p), EvenBFloat16(p + 16)};
}
QUIRE_INLINE Vec LoadOdd(const BFloat16* p) {
  return {OddBFloat16(p), OddBFloat16(p + 16)};
}

QUIRE_INLINE void Store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
QUIRE_INLINE void StoreFirst(float* p, int n, Vec a) {
  _mm256_maskstore_ps(p, FirstLanes(n), a.lo);
  _mm256_maskstore_ps(p + 8, FirstLanes(n - 8), a.hi);
}
// Returns the bfloat16 of each lane in the lane's low 16 bits.
QUIRE_INLINE __m256i RoundToBFloat16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
QUIRE_INLINE void Store(BFloat16* p, Vec a) {
  // packus works within 128-bit halves, so the permutation puts the four quarters back in order.
  const __m256i packed = _mm256_packus_epi32(RoundToBFloat16(a.lo), RoundToBFloat16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
}
QUIRE_INLINE void Store(Float16* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

QUIRE_INLINE Vec Add(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec Sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec Mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec Div(Vec a, Vec b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec Sqrt(Vec a) {
  return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
QUIRE_INLINE Vec Fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// GCC would give sums other registers in every step, and would put some of them into memory.
QUIRE_INLINE void FmaInPlace(Vec a, Vec b, Vec* sum) {
  asm("vfmadd231ps %1, %2, %0" : "+x"(sum->lo) : "x"(a.lo), "x"(b.lo));
  asm("vfmadd231ps %1, %2, %0" : "+x"(sum->hi) : "x"(a.hi), "x"(b.hi));
}
QUIRE_INLINE Vec Max(Vec a, Vec b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec Min(Vec a, Vec b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

QUIRE_INLINE uint32_t JoinMasks(__m256 lo, __m256 hi) {
  return uint32_t(_mm256_movemask_ps(lo)) | uint32_t(_mm256_movemask_ps(hi)) << 8;
}
QUIRE_INLINE uint32_t Greater(Vec a, Vec b) {
  return JoinMasks(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ));
}
QUIRE_INLINE uint32_t GreaterEqual(Vec a, Vec b) {
  return JoinMasks(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ));
}
QUIRE_INLINE uint32_t Equal(Vec a, Vec b) {
  return JoinMasks(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ));
}
QUIRE_INLINE __m256 WidenMask(uint32_t mask) {
  const __m256i lane_bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(int(mask)), lane_bits);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane_bits));
}
QUIRE_INLINE Vec Select(uint32_t mask, Vec a, Vec b) {
  return {_mm256_blendv_ps(a.lo, b.lo, WidenMask(mask)), _mm256_blendv_ps(a.hi, b.hi, WidenMask(mask >> 8))};
}

QUIRE_INLINE Vec Round(Vec a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
QUIRE_INLINE __m256 PowerOfTwo(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
QUIRE_INLINE Vec ScaleByPowerOfTwo(Vec a, Vec n) {
  return Mul(a, {PowerOfTwo(n.lo), PowerOfTwo(n.hi)});
}
QUIRE_INLINE void SplitExponent(__m256 a, __m256* mantissa, __m256* exponent) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)), 23);
  *mantissa = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
  *exponent = _mm256_cvtepi32_ps(e);
}
QUIRE_INLINE void SplitExponent(Vec a, Vec* mantissa, Vec* exponent) {
  SplitExponent(a.lo, &mantissa->lo, &exponent->lo);
  SplitExponent(a.hi, &mantissa->hi, &exponent->hi);
}

QUIRE_INLINE float First(Vec a) {
  return _mm256_cvtss_f32(a.lo);
}
QUIRE_INLINE float ReduceAdd(Vec a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
QUIRE_INLINE float ReduceMax(Vec a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// --- 16 unsigned integers ---

struct UVec {
  __m256i lo, hi;
};

QUIRE_INLINE UVec LoadU(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
QUIRE_INLINE void StoreU(uint32_t* p, UVec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
QUIRE_INLINE UVec SetU(uint32_t x) {
  return {_mm256_set1_epi32(int(x)), _mm256_set1_epi32(int(x))};
}
QUIRE_INLINE UVec CountFrom(uint32_t first) {
  const __m256i start = _mm256_add_epi32(_mm256_set1_epi32(int(first)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return {start, _mm256_add_epi32(start, _mm256_set1_epi32(8))};
}
QUIRE_INLINE UVec Xor(UVec a, UVec b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
QUIRE_INLINE __m256i MultiplyHigh(__m256i a, __m256i b) {
  const __m256i even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
QUIRE_INLINE void MultiplyWide(UVec a, uint32_t b, UVec* high, UVec* low) {
  const __m256i factor = _mm256_set1_epi32(int(b));
  *high = {MultiplyHigh(a.lo, factor), MultiplyHigh(a.hi, factor)};
  *low = {_mm256_mullo_epi32(a.lo, factor), _mm256_mullo_epi32(a.hi, factor)};
}
// The upper 16 bits and the lower 16 bits convert exactly, so the sum rounds once.
QUIRE_INLINE __m256 ToFloats(__m256i a) {
  const __m256 upper = _mm256_cvtepi32_ps(_mm256_srli_epi32(a, 16));
  const __m256 lower = _mm256_cvtepi32_ps(_mm256_and_si256(a, _mm256_set1_epi32(0xffff)));
  return _mm256_add_ps(_mm256_mul_ps(upper, _mm256_set1_ps(65536.0f)), lower);
}
QUIRE_INLINE Vec ToFloats(UVec a) {
  return {ToFloats(a.lo), ToFloats(a.hi)};
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ISA_SIMD_AVX2_H_
