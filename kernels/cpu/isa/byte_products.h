// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_BYTE_PRODUCTS_H_
#define QUIRE_KERNELS_CPU_ISA_BYTE_PRODUCTS_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa/simd.h"

// Exact products of unsigned weights of 8 bits by inputs in [-127, 127], four consecutive k of 16 columns at a time. No
// step saturates: VPDPBUSD adds four products in 32 bits, and VPMADDWD adds two products of 16-bit numbers in 32 bits.
//
//   QuantizedValue  the form of an input. Four consecutive inputs are stored in the order 0, 1, 2, 3 for VPDPBUSD and
//                   generic code, and in the order 0, 2, 1, 3 for VPMADDWD, which takes the even inputs and then the
//                   odd ones.
//   IntVec          16 sums in int32, which wrap.
//   WeightQuads     64 bytes of a panel: for each of 16 columns, the weights of four consecutive k.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Reads `n` bytes as an integer of that size.
template <typename Int>
QUIRE_INLINE Int ReadInt(const void* p) {
  Int value;
  memcpy(&value, p, sizeof(value));
  return value;
}

// Sums have the type of vector that the instruction adds. As __m512i or __m256i they would be converted before and
// after each addition, and GCC 12 makes copies of registers for that.
#if defined(__AVX512F__)

#if defined(__AVX512VNNI__)
struct IntVec {
  __v16si v;
};
#else
struct IntVec {
  __v16su v;
};
#endif

QUIRE_INLINE IntVec SetInt(int32_t x) {
  return {decltype(IntVec::v)(_mm512_set1_epi32(x))};
}
QUIRE_INLINE Vec ToFloats(IntVec a) {
  return {_mm512_cvtepi32_ps(__m512i(a.v))};
}
// Stores 16 whole numbers in [-127, 127] in their order.
QUIRE_INLINE void StoreQuantized(int8_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

#if defined(__AVX512VNNI__)

using QuantizedValue = int8_t;
struct WeightQuads {
  __m512i v;
};

QUIRE_INLINE WeightQuads LoadQuads(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
// Adds the products of each column's four weights by x[0, 4).
QUIRE_INLINE IntVec AddProducts(IntVec sum, const WeightQuads& w, const QuantizedValue* x) {
  return {__v16si(_mm512_dpbusd_epi32(__m512i(sum.v), w.v, _mm512_set1_epi32(ReadInt<int32_t>(x))))};
}

#else

using QuantizedValue = int16_t;
struct WeightQuads {
  __m512i even, odd;
};

QUIRE_INLINE WeightQuads LoadQuads(const uint8_t* p) {
  const __m512i bytes = _mm512_loadu_si512(p);
  return {_mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(bytes, 8)};
}
QUIRE_INLINE IntVec AddProducts(IntVec sum, const WeightQuads& w, const QuantizedValue* x) {
  sum.v += __v16su(_mm512_madd_epi16(w.even, _mm512_set1_epi32(ReadInt<int32_t>(x))));
  sum.v += __v16su(_mm512_madd_epi16(w.odd, _mm512_set1_epi32(ReadInt<int32_t>(x + 2))));
  return sum;
}
// Stores them in the order of QuantizedValue.
QUIRE_INLINE void StoreQuantized(int16_t* p, Vec a) {
  const __m256i values = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v));
  constexpr int kOrder = _MM_SHUFFLE(3, 1, 2, 0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(values, kOrder), kOrder));
}

#endif  // __AVX512VNNI__

#elif defined(__AVX2__)

struct IntVec {
  __v8su lo, hi;
};

QUIRE_INLINE IntVec SetInt(int32_t x) {
  return {__v8su(_mm256_set1_epi32(x)), __v8su(_mm256_set1_epi32(x))};
}
QUIRE_INLINE Vec ToFloats(IntVec a) {
  return {_mm256_cvtepi32_ps(__m256i(a.lo)), _mm256_cvtepi32_ps(__m256i(a.hi))};
}

using QuantizedValue = int16_t;
struct WeightQuads {
  __m256i even_lo, odd_lo, even_hi, odd_hi;
};

QUIRE_INLINE WeightQuads LoadQuads(const uint8_t* p) {
  const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
  const __m256i low_byte = _mm256_set1_epi16(0xff);
  return {_mm256_and_si256(lo, low_byte), _mm256_srli_epi16(lo, 8), _mm256_and_si256(hi, low_byte),
          _mm256_srli_epi16(hi, 8)};
}
QUIRE_INLINE IntVec AddProducts(IntVec sum, const WeightQuads& w, const QuantizedValue* x) {
  const __m256i even = _mm256_set1_epi32(ReadInt<int32_t>(x)), odd = _mm256_set1_epi32(ReadInt<int32_t>(x + 2));
  sum.lo += __v8su(_mm256_madd_epi16(w.even_lo, even));
  sum.hi += __v8su(_mm256_madd_epi16(w.even_hi, even));
  sum.lo += __v8su(_mm256_madd_epi16(w.odd_lo, odd));
  sum.hi += __v8su(_mm256_madd_epi16(w.odd_hi, odd));
  return sum;
}
// Returns 16 whole numbers in their order.
QUIRE_INLINE __m256i PackWhole(Vec a) {
  // packs works within 128-bit halves, so the permutation puts the four quarters back in order.
  const __m256i packed = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
  return _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
}
QUIRE_INLINE void StoreQuantized(int8_t* p, Vec a) {
  const __m256i values = PackWhole(a);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1)));
}
QUIRE_INLINE void StoreQuantized(int16_t* p, Vec a) {
  const __m256i values = PackWhole(a);
  constexpr int kOrder = _MM_SHUFFLE(3, 1, 2, 0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(values, kOrder), kOrder));
}

#else

struct IntVec {
  uint32_t v[kLanes];  // The bits of int32. Unsigned numbers may wrap.
};

QUIRE_INLINE IntVec SetInt(int32_t x) {
  IntVec result;
  for (int i = 0; i < kLanes; ++i) result.v[i] = uint32_t(x);
  return result;
}
QUIRE_INLINE Vec ToFloats(IntVec a) {
  return EachLane([&](int i) { return float(int32_t(a.v[i])); });
}

using QuantizedValue = int8_t;
struct WeightQuads {
  uint32_t v[kLanes];
};

QUIRE_INLINE WeightQuads LoadQuads(const uint8_t* p) {
  return ReadInt<WeightQuads>(p);
}
QUIRE_INLINE IntVec AddProducts(IntVec sum, const WeightQuads& w, const QuantizedValue* x) {
  for (int i = 0; i < kLanes; ++i) {
    const int32_t even = int32_t(w.v[i] & 0xff) * x[0] + int32_t(w.v[i] >> 16 & 0xff) * x[2];
    const int32_t odd = int32_t(w.v[i] >> 8 & 0xff) * x[1] + int32_t(w.v[i] >> 24) * x[3];
    sum.v[i] += uint32_t(even + odd);
  }
  return sum;
}
QUIRE_INLINE void StoreQuantized(int8_t* p, Vec a) {
  for (int i = 0; i < kLanes; ++i) p[i] = int8_t(a.v[i]);
}

#endif

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ISA_BYTE_PRODUCTS_H_
