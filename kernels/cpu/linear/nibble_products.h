// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_NIBBLE_PRODUCTS_H_
#define QUIRE_KERNELS_CPU_LINEAR_NIBBLE_PRODUCTS_H_

#include "kernels/cpu/isa/byte_products.h"
#include "kernels/cpu/linear/linear_task.h"

// Exact products of weights in [0, 15] by inputs in [-127, 127]. 64 bytes of a panel hold a word of eight consecutive k
// for each of 16 columns; see weight_panels.h.
//
//   NibbleQuads   four consecutive k of 16 columns: the low or the high halves of the bytes.
//   SpanSums      16 sums over a span of kSpanColumns columns. VPDPBUSD and generic code add in 32 bits, so a span has
//                 any length. VPMADDUBSW adds pairs of products in 16 bits, and eight additions stay in range:
//                 32 columns are 16 pairs of at most 2 * 15 * 127, half of them in each of the two sums of a column.
//   NibbleFloats  the weights of one k as floats.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

#if defined(__AVX512VNNI__)

constexpr int kSpanColumns = 1 << 20;  // A whole group.
using SpanSums = IntVec;
using NibbleQuads = WeightQuads;

template <bool kHigh>
QUIRE_INLINE NibbleQuads LoadNibbles(const uint8_t* p) {
  const __m512i bytes = _mm512_loadu_si512(p);
  return {_mm512_and_si512(kHigh ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15))};
}
QUIRE_INLINE SpanSums AddNibbles(SpanSums sum, const NibbleQuads& w, const int8_t* x) {
  return AddProducts(sum, w, x);
}
QUIRE_INLINE IntVec AddSpan(IntVec sum, SpanSums span) {
  return {sum.v + span.v};
}

#elif defined(__AVX512F__)

constexpr int kSpanColumns = 32;
struct SpanSums {
  __v32hi v;
};
struct NibbleQuads {
  __m512i v;
};

template <bool kHigh>
QUIRE_INLINE NibbleQuads LoadNibbles(const uint8_t* p) {
  const __m512i bytes = _mm512_loadu_si512(p);
  return {_mm512_and_si512(kHigh ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15))};
}
QUIRE_INLINE SpanSums AddNibbles(SpanSums sum, const NibbleQuads& w, const int8_t* x) {
  return {sum.v + __v32hi(_mm512_maddubs_epi16(w.v, _mm512_set1_epi32(ReadInt<int32_t>(x))))};
}
QUIRE_INLINE IntVec AddSpan(IntVec sum, SpanSums span) {
  return {sum.v + __v16su(_mm512_madd_epi16(__m512i(span.v), _mm512_set1_epi16(1)))};
}

#elif defined(__AVX2__)

constexpr int kSpanColumns = 32;
struct SpanSums {
  __v16hi lo, hi;
};
struct NibbleQuads {
  __m256i lo, hi;
};

template <bool kHigh>
QUIRE_INLINE NibbleQuads LoadNibbles(const uint8_t* p) {
  const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(kHigh ? _mm256_srli_epi16(lo, 4) : lo, mask),
          _mm256_and_si256(kHigh ? _mm256_srli_epi16(hi, 4) : hi, mask)};
}
QUIRE_INLINE SpanSums AddNibbles(SpanSums sum, const NibbleQuads& w, const int8_t* x) {
  const __m256i four = _mm256_set1_epi32(ReadInt<int32_t>(x));
  return {sum.lo + __v16hi(_mm256_maddubs_epi16(w.lo, four)), sum.hi + __v16hi(_mm256_maddubs_epi16(w.hi, four))};
}
QUIRE_INLINE IntVec AddSpan(IntVec sum, SpanSums span) {
  const __m256i one = _mm256_set1_epi16(1);
  return {sum.lo + __v8su(_mm256_madd_epi16(__m256i(span.lo), one)),
          sum.hi + __v8su(_mm256_madd_epi16(__m256i(span.hi), one))};
}

#else

constexpr int kSpanColumns = 1 << 20;  // A whole group.
using SpanSums = IntVec;
using NibbleQuads = WeightQuads;

template <bool kHigh>
QUIRE_INLINE NibbleQuads LoadNibbles(const uint8_t* p) {
  NibbleQuads quads = LoadQuads(p);
  for (int i = 0; i < kLanes; ++i) quads.v[i] = quads.v[i] >> (kHigh ? 4 : 0) & 0x0f0f0f0f;
  return quads;
}
QUIRE_INLINE SpanSums AddNibbles(SpanSums sum, const NibbleQuads& w, const int8_t* x) {
  return AddProducts(sum, w, x);
}
QUIRE_INLINE IntVec AddSpan(IntVec sum, SpanSums span) {
  for (int i = 0; i < kLanes; ++i) sum.v[i] += span.v[i];
  return sum;
}

#endif

#if defined(__AVX512F__)

QUIRE_INLINE Vec LoadBytes(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Returns the weights of k = kIndex of each column's eight.
template <int kIndex>
QUIRE_INLINE Vec NibbleFloats(const uint8_t* p) {
  const __m512i words = _mm512_srli_epi32(_mm512_loadu_si512(p), kIndex % 4 * 8 + kIndex / 4 * 4);
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm512_permutexvar_ps(words, table)};  // Reads only the lowest four bits of an index.
}

#elif defined(__AVX2__)

QUIRE_INLINE Vec LoadBytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}
template <int kIndex>
QUIRE_INLINE Vec NibbleFloats(const uint8_t* p) {
  constexpr int kShift = kIndex % 4 * 8 + kIndex / 4 * 4;
  const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
  const __m256i mask = _mm256_set1_epi32(15);
  return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(lo, kShift), mask)),
          _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(hi, kShift), mask))};
}

#else

QUIRE_INLINE Vec LoadBytes(const uint8_t* p) {
  return EachLane([&](int i) { return float(p[i]); });
}
template <int kIndex>
QUIRE_INLINE Vec NibbleFloats(const uint8_t* p) {
  const WeightQuads words = LoadQuads(p);
  return EachLane([&](int i) { return float(words.v[i] >> (kIndex % 4 * 8 + kIndex / 4 * 4) & 15); });
}

#endif

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_NIBBLE_PRODUCTS_H_
