// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_WORD_PRODUCTS_H_
#define QUIRE_KERNELS_CPU_ISA_WORD_PRODUCTS_H_

#include <cstdint>

#include "kernels/cpu/isa/byte_products.h"
#include "kernels/cpu/isa/simd.h"

// Exact products of bytes of an int8 cache by words, which are whole numbers of 16 bits in [-32767, 32767], two at a
// time in 16 lanes. Sums wrap at 32 bits.
//
//   BytePairs  32 bytes of a unit: for each of 16 lanes, the numbers of two consecutive dimensions (K) or tokens (V).
//              They are held as words.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kMaxWord = 32767;

#if defined(__AVX512F__)

struct BytePairs {
  __m512i v;
};

QUIRE_INLINE BytePairs LoadBytePairs(const int8_t* p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// Adds a[0] * words[0] + a[1] * words[1] in each lane.
QUIRE_INLINE IntVec AddProducts(IntVec sum, const BytePairs& a, const int16_t* words) {
  const __m512i pair = _mm512_set1_epi32(ReadInt<int32_t>(words));
#if defined(__AVX512VNNI__)
  return {__v16si(_mm512_dpwssd_epi32(__m512i(sum.v), a.v, pair))};
#else
  sum.v += __v16su(_mm512_madd_epi16(a.v, pair));
  return sum;
#endif
}
// Stores 16 whole numbers that fit into words.
QUIRE_INLINE void StoreWords(int16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v)));
}

#elif defined(__AVX2__)

struct BytePairs {
  __m256i lo, hi;
};

QUIRE_INLINE BytePairs LoadBytePairs(const int8_t* p) {
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
QUIRE_INLINE IntVec AddProducts(IntVec sum, const BytePairs& a, const int16_t* words) {
  const __m256i pair = _mm256_set1_epi32(ReadInt<int32_t>(words));
  sum.lo += __v8su(_mm256_madd_epi16(a.lo, pair));
  sum.hi += __v8su(_mm256_madd_epi16(a.hi, pair));
  return sum;
}
QUIRE_INLINE void StoreWords(int16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), PackWhole(a));
}

#else

struct BytePairs {
  int16_t v[2 * kLanes];
};

QUIRE_INLINE BytePairs LoadBytePairs(const int8_t* p) {
  BytePairs pairs;
  for (int i = 0; i < 2 * kLanes; ++i) pairs.v[i] = p[i];
  return pairs;
}
QUIRE_INLINE IntVec AddProducts(IntVec sum, const BytePairs& a, const int16_t* words) {
  for (int i = 0; i < kLanes; ++i) {
    sum.v[i] += uint32_t(int32_t{a.v[2 * i]} * words[0] + int32_t{a.v[2 * i + 1]} * words[1]);
  }
  return sum;
}
QUIRE_INLINE void StoreWords(int16_t* p, Vec a) {
  for (int i = 0; i < kLanes; ++i) p[i] = int16_t(a.v[i]);
}

#endif

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ISA_WORD_PRODUCTS_H_
