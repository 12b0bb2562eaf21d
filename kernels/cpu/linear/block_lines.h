// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_BLOCK_LINES_H_
#define QUIRE_KERNELS_CPU_LINEAR_BLOCK_LINES_H_

#include <bit>
#include <cstdint>

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/fp8_products.h"
#include "kernels/cpu/linear/nibble_products.h"

// Numbers of panels of blocks (weight_panels.h) as pairs of consecutive k of 16 columns. They are exact as bfloat16.
// AVX-512 looks them up in a table of bfloat16 by the 16 bits that hold the number of one k in their lowest bits; other
// sets make floats.
//
//   NumberPairs  two consecutive k of 16 columns.
//   Q4Line, ...  a line of a panel; Pair<i> are its k 2 i and 2 i + 1.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

#if defined(__AVX512F__)

using NumberPairs = WeightPairs;

// Entry i is the number `first` + i % `period`.
template <int kPeriod, int kFirst>
struct NumberTable {
  alignas(64) uint16_t of[64];

  constexpr NumberTable() : of{} {
    // They are exact as bfloat16, which is the upper half of a float.
    for (int i = 0; i < 64; ++i) of[i] = uint16_t(std::bit_cast<uint32_t>(float(kFirst + i % kPeriod)) >> 16);
  }
};
template <int kPeriod, int kFirst>
constexpr NumberTable<kPeriod, kFirst> kNumberTable;

QUIRE_INLINE __m512i LoadLine(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}
// The 16 bits of each k of a pair, shifted to the right or, if kShift is negative, to the left.
template <int kShift>
QUIRE_INLINE __m512i ShiftRight(__m512i v) {
  if constexpr (kShift == 0) return v;
  if constexpr (kShift > 0) return _mm512_srli_epi16(v, kShift);
  return _mm512_slli_epi16(v, -kShift);
}
// The lowest four bits of `low`, and the others of `high`.
QUIRE_INLINE __m512i JoinBits(__m512i low, __m512i high) {
  return _mm512_ternarylogic_epi32(_mm512_set1_epi16(15), low, high, 0xca);
}
// Looks up the number of the lowest five bits of each index, and of the lowest six.
template <int kPeriod, int kFirst>
QUIRE_INLINE NumberPairs LookUp32(__m512i index) {
  return {_mm512_permutexvar_epi16(index, _mm512_load_si512(kNumberTable<kPeriod, kFirst>.of))};
}
template <int kPeriod, int kFirst>
QUIRE_INLINE NumberPairs LookUp64(__m512i index) {
  const uint16_t* table = kNumberTable<kPeriod, kFirst>.of;
  return {_mm512_permutex2var_epi16(_mm512_load_si512(table), index, _mm512_load_si512(table + 32))};
}

struct Q4Line {
  __m512i low;

  static QUIRE_INLINE Q4Line Read(const uint8_t* p) { return {LoadLine(p)}; }
  template <int kPair>
  QUIRE_INLINE NumberPairs Pair() const {
    return LookUp32<16, 0>(ShiftRight<4 * kPair>(low));
  }
};

struct Q5Line {
  __m512i low[4], high;

  static QUIRE_INLINE Q5Line Read(const uint8_t* p) {
    return {{LoadLine(p), LoadLine(p + 64), LoadLine(p + 128), LoadLine(p + 192)}, LoadLine(p + 256)};
  }
  template <int kPair>
  QUIRE_INLINE NumberPairs Pair() const {
    return LookUp32<32, 0>(JoinBits(ShiftRight<kPair % 4 * 4>(low[kPair / 4]), ShiftRight<kPair - 4>(high)));
  }
};

struct Q6Line {
  __m512i low[2], high;

  static QUIRE_INLINE Q6Line Read(const uint8_t* p) { return {{LoadLine(p), LoadLine(p + 64)}, LoadLine(p + 128)}; }
  template <int kPair>
  QUIRE_INLINE NumberPairs Pair() const {
    return LookUp64<64, -32>(JoinBits(ShiftRight<kPair % 4 * 4>(low[kPair / 4]), ShiftRight<2 * kPair - 4>(high)));
  }
};

struct Q8Line {
  const uint8_t* at;

  static QUIRE_INLINE Q8Line Read(const uint8_t* p) { return {p}; }
  template <int kPair>
  QUIRE_INLINE NumberPairs Pair() const {
    // The upper halves of the floats, in their order.
    alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const auto floats = [&](int half) __attribute__((always_inline)) {
      const auto* from = reinterpret_cast<const __m128i*>(at + kPair * 2 * kLanes + half * kLanes);
      return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from))));
    };
    return {_mm512_permutex2var_epi16(floats(0), _mm512_load_si512(kUpper), floats(1))};
  }
};

QUIRE_INLINE Vec SignedByteFloats(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

#else

struct NumberPairs {
  Vec even, odd;
};
QUIRE_INLINE void SplitPairs(const NumberPairs& pairs, Vec* even, Vec* odd) {
  *even = pairs.even;
  *odd = pairs.odd;
}

#if defined(__AVX2__)

// 16 words of 32 bits.
struct Words {
  __m256i lo, hi;
};
QUIRE_INLINE Words LoadWords(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
// 16 words of 16 bits, widened.
QUIRE_INLINE Words LoadHalfWords(const uint8_t* p) {
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
// kBits bits from bit kShift on.
template <int kShift, int kBits>
QUIRE_INLINE Words Bits(const Words& words) {
  const __m256i mask = _mm256_set1_epi32((1 << kBits) - 1);
  return {_mm256_and_si256(_mm256_srli_epi32(words.lo, kShift), mask),
          _mm256_and_si256(_mm256_srli_epi32(words.hi, kShift), mask)};
}
// The byte that begins at bit kShift, as a signed number.
template <int kShift>
QUIRE_INLINE Words SignedByte(const Words& words) {
  return {_mm256_srai_epi32(_mm256_slli_epi32(words.lo, 24 - kShift), 24),
          _mm256_srai_epi32(_mm256_slli_epi32(words.hi, 24 - kShift), 24)};
}
// low + 16 * high.
QUIRE_INLINE Words JoinBits(const Words& low, const Words& high) {
  return {_mm256_or_si256(low.lo, _mm256_slli_epi32(high.lo, 4)),
          _mm256_or_si256(low.hi, _mm256_slli_epi32(high.hi, 4))};
}
QUIRE_INLINE Vec ToFloats(const Words& words) {
  return {_mm256_cvtepi32_ps(words.lo), _mm256_cvtepi32_ps(words.hi)};
}
QUIRE_INLINE void StorePairs(BFloat16* p, const NumberPairs& pairs) {
  const auto join = [](__m256 even, __m256 odd) __attribute__((always_inline)) {
    const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(even), 16);
    return _mm256_blend_epi16(low, _mm256_castps_si256(odd), 0xaa);
  };
  StorePairs(p, WeightPairs{join(pairs.even.lo, pairs.odd.lo), join(pairs.even.hi, pairs.odd.hi)});
}
QUIRE_INLINE Vec SignedByteFloats(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

#else

struct Words {
  uint32_t v[kLanes];
};
QUIRE_INLINE Words LoadWords(const uint8_t* p) {
  Words words;
  memcpy(words.v, p, sizeof(words.v));
  return words;
}
QUIRE_INLINE Words LoadHalfWords(const uint8_t* p) {
  uint16_t halves[kLanes];
  memcpy(halves, p, sizeof(halves));
  Words words;
  for (int i = 0; i < kLanes; ++i) words.v[i] = halves[i];
  return words;
}
template <int kShift, int kBits>
QUIRE_INLINE Words Bits(const Words& words) {
  Words result;
  for (int i = 0; i < kLanes; ++i) result.v[i] = words.v[i] >> kShift & ((1 << kBits) - 1);
  return result;
}
template <int kShift>
QUIRE_INLINE Words SignedByte(const Words& words) {
  Words result;
  for (int i = 0; i < kLanes; ++i) result.v[i] = uint32_t(int32_t(int8_t(words.v[i] >> kShift)));
  return result;
}
QUIRE_INLINE Words JoinBits(const Words& low, const Words& high) {
  Words result;
  for (int i = 0; i < kLanes; ++i) result.v[i] = low.v[i] | high.v[i] << 4;
  return result;
}
QUIRE_INLINE Vec ToFloats(const Words& words) {
  return EachLane([&](int i) { return float(int32_t(words.v[i])); });
}
QUIRE_INLINE void StorePairs(BFloat16* p, const NumberPairs& pairs) {
  float even[kLanes], odd[kLanes];
  Store(even, pairs.even);
  Store(odd, pairs.odd);
  for (int i = 0; i < kLanes; ++i) {
    p[2 * i] = ToBFloat16(even[i]);
    p[2 * i + 1] = ToBFloat16(odd[i]);
  }
}
QUIRE_INLINE Vec SignedByteFloats(const uint8_t* p) {
  return EachLane([&](int i) { return float(int8_t(p[i])); });
}

#endif

struct Q4Line {
  Words low;

  static QUIRE_INLINE Q4Line Read(const uint8_t* p) { return {LoadWords(p)}; }
  template <int kPair>
  QUIRE_INLINE NumberPairs Pair() const {
    return {ToFloats(Bits<4 * kPair, 4>(low)), ToFloats(Bits<16 + 4 * kPair, 4>(low))};
  }
};

struct Q5Line {
  const uint8_t* at;

  static QUIRE_INLINE Q5Line Read(const uint8_t* p) { return {p}; }
  template <int kPair>
  QUIRE_INLINE NumberPairs Pair() const {
    const Words low = LoadWords(at + kPair / 4 * 64), high = LoadWords(at + 256);
    constexpr int kShift = kPair % 4 * 4;
    return {ToFloats(JoinBits(Bits<kShift, 4>(low), Bits<kPair, 1>(high))),
            ToFloats(JoinBits(Bits<16 + kShift, 4>(low), Bits<16 + kPair, 1>(high)))};
  }
};

struct Q6Line {
  const uint8_t* at;

  static QUIRE_INLINE Q6Line Read(const uint8_t* p) { return {p}; }
  template <int kPair>
  QUIRE_INLINE NumberPairs Pair() const {
    const Words low = LoadWords(at + kPair / 4 * 64), high = LoadWords(at + 128);
    constexpr int kShift = kPair % 4 * 4;
    const Vec offset = Set(32.0f);
    return {Sub(ToFloats(JoinBits(Bits<kShift, 4>(low), Bits<2 * kPair, 2>(high))), offset),
            Sub(ToFloats(JoinBits(Bits<16 + kShift, 4>(low), Bits<16 + 2 * kPair, 2>(high))), offset)};
  }
};

struct Q8Line {
  const uint8_t* at;

  static QUIRE_INLINE Q8Line Read(const uint8_t* p) { return {p}; }
  template <int kPair>
  QUIRE_INLINE NumberPairs Pair() const {
    const Words halves = LoadHalfWords(at + kPair * 2 * kLanes);
    return {ToFloats(SignedByte<0>(halves)), ToFloats(SignedByte<8>(halves))};
  }
};

#endif

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_BLOCK_LINES_H_
