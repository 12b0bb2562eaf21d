// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_BLOCK_PRODUCTS_H_
#define QUIRE_KERNELS_CPU_LINEAR_BLOCK_PRODUCTS_H_

#include <bit>

#include "kernels/cpu/isa/byte_products.h"
#include "kernels/cpu/isa/word_products.h"
#include "kernels/cpu/linear/block_panels.h"
#include "kernels/cpu/linear/nibble_products.h"

// Exact products of the numbers of blocks by rounded inputs, and of their sums by small scales.
//
//   NibbleQuads  four consecutive k of 16 columns, as bytes that are not negative.
//   GroupScale   the small scale of a group of 16 columns, in the form that AddScaled takes.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Whether AddNibbles adds in 16 bits. Then a span has as many quads as fit, and kQ8_0 is multiplied as two numbers of
// 4 bits.
constexpr bool kAddsWords = kSpanColumns == 32;

// Without this, the compiler would compute all products of a span before it adds them, and keep them in memory.
QUIRE_INLINE void EndAddition([[maybe_unused]] SpanSums* sums) {
#if defined(__AVX512VNNI__)
#elif defined(__AVX512F__)
  asm("" : "+v"(sums->v));
#elif defined(__AVX2__)
  asm("" : "+x"(sums->lo), "+x"(sums->hi));
#endif
}

#if defined(__AVX512F__)

QUIRE_INLINE NibbleQuads LoadLine(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
// Bits that begin at bit kFrom of each byte of `high`, moved to bit 4 and masked.
template <int kFrom>
QUIRE_INLINE __m512i UpperBits(__m512i high, int mask) {
  const __m512i moved = kFrom < 4 ? _mm512_slli_epi16(high, 4 - kFrom) : _mm512_srli_epi16(high, kFrom - 4);
  return _mm512_and_si512(moved, _mm512_set1_epi8(char(mask)));
}
// Returns the entries of a table of 16 bytes for codes in [0, 15].
QUIRE_INLINE NibbleQuads LookUp(const uint8_t* table, const NibbleQuads& codes) {
  const __m512i tables = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(tables, codes.v)};
}
template <int kFrom>
QUIRE_INLINE NibbleQuads JoinBits(const NibbleQuads& low, const NibbleQuads& high, int mask) {
  return {_mm512_or_si512(low.v, UpperBits<kFrom>(high.v, mask))};
}

#if defined(__AVX512VNNI__)

struct GroupScale {
  __v16si v;
};
template <bool kOdd>
QUIRE_INLINE GroupScale ScaleOf(const BytePairs& pairs) {
  return {__v16si(_mm512_srai_epi32(kOdd ? pairs.v : _mm512_slli_epi32(pairs.v, 16), 16))};
}
QUIRE_INLINE GroupScale SetScale(int scale) {
  return {__v16si(_mm512_set1_epi32(scale))};
}
QUIRE_INLINE IntVec AddScaled(IntVec total, SpanSums span, GroupScale scale) {
  return {total.v + span.v * scale.v};
}
QUIRE_INLINE IntVec Subtract(IntVec a, IntVec b, int shift) {
  return {a.v - __v16si(_mm512_slli_epi32(__m512i(b.v), shift))};
}

#else

// The scale is in both words of a lane.
struct GroupScale {
  __m512i v;
};
template <bool kOdd>
QUIRE_INLINE GroupScale ScaleOf(const BytePairs& pairs) {
  constexpr __mmask32 kUpper = 0xaaaaaaaa;
  if constexpr (kOdd) return {_mm512_mask_blend_epi16(kUpper, _mm512_srli_epi32(pairs.v, 16), pairs.v)};
  return {_mm512_mask_blend_epi16(kUpper, pairs.v, _mm512_slli_epi32(pairs.v, 16))};
}
QUIRE_INLINE GroupScale SetScale(int scale) {
  return {_mm512_set1_epi16(int16_t(scale))};
}
QUIRE_INLINE IntVec AddScaled(IntVec total, SpanSums span, GroupScale scale) {
  return {total.v + __v16su(_mm512_madd_epi16(__m512i(span.v), scale.v))};
}
QUIRE_INLINE IntVec Subtract(IntVec a, IntVec b, int shift) {
  return {a.v - __v16su(_mm512_slli_epi32(__m512i(b.v), shift))};
}

#endif

#elif defined(__AVX2__)

QUIRE_INLINE NibbleQuads LoadLine(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
template <int kFrom>
QUIRE_INLINE __m256i UpperBits(__m256i high, int mask) {
  const __m256i moved = kFrom < 4 ? _mm256_slli_epi16(high, 4 - kFrom) : _mm256_srli_epi16(high, kFrom - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(char(mask)));
}
QUIRE_INLINE NibbleQuads LookUp(const uint8_t* table, const NibbleQuads& codes) {
  const __m256i tables = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(tables, codes.lo), _mm256_shuffle_epi8(tables, codes.hi)};
}
template <int kFrom>
QUIRE_INLINE NibbleQuads JoinBits(const NibbleQuads& low, const NibbleQuads& high, int mask) {
  return {_mm256_or_si256(low.lo, UpperBits<kFrom>(high.lo, mask)),
          _mm256_or_si256(low.hi, UpperBits<kFrom>(high.hi, mask))};
}

struct GroupScale {
  __m256i lo, hi;
};
template <bool kOdd>
QUIRE_INLINE __m256i ScaleOfHalf(__m256i pairs) {
  constexpr int kUpper = 0xaa;
  if constexpr (kOdd) return _mm256_blend_epi16(_mm256_srli_epi32(pairs, 16), pairs, kUpper);
  return _mm256_blend_epi16(pairs, _mm256_slli_epi32(pairs, 16), kUpper);
}
template <bool kOdd>
QUIRE_INLINE GroupScale ScaleOf(const BytePairs& pairs) {
  return {ScaleOfHalf<kOdd>(pairs.lo), ScaleOfHalf<kOdd>(pairs.hi)};
}
QUIRE_INLINE GroupScale SetScale(int scale) {
  return {_mm256_set1_epi16(int16_t(scale)), _mm256_set1_epi16(int16_t(scale))};
}
QUIRE_INLINE IntVec AddScaled(IntVec total, SpanSums span, GroupScale scale) {
  return {total.lo + __v8su(_mm256_madd_epi16(__m256i(span.lo), scale.lo)),
          total.hi + __v8su(_mm256_madd_epi16(__m256i(span.hi), scale.hi))};
}
QUIRE_INLINE IntVec Subtract(IntVec a, IntVec b, int shift) {
  return {a.lo - __v8su(_mm256_slli_epi32(__m256i(b.lo), shift)),
          a.hi - __v8su(_mm256_slli_epi32(__m256i(b.hi), shift))};
}

#else

QUIRE_INLINE NibbleQuads LoadLine(const uint8_t* p) {
  return LoadQuads(p);
}
QUIRE_INLINE NibbleQuads LookUp(const uint8_t* table, const NibbleQuads& codes) {
  NibbleQuads result;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t word = codes.v[i];
    result.v[i] = uint32_t{table[word & 255]} | uint32_t{table[word >> 8 & 255]} << 8 |
                  uint32_t{table[word >> 16 & 255]} << 16 | uint32_t{table[word >> 24]} << 24;
  }
  return result;
}
template <int kFrom>
QUIRE_INLINE NibbleQuads JoinBits(const NibbleQuads& low, const NibbleQuads& high, int mask) {
  NibbleQuads result;
  const uint32_t masks = uint32_t(mask) * 0x01010101u;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t moved =
        kFrom < 4 ? high.v[i] << (kFrom < 4 ? 4 - kFrom : 0) : high.v[i] >> (kFrom < 4 ? 0 : kFrom - 4);
    result.v[i] = low.v[i] | (moved & masks);
  }
  return result;
}

struct GroupScale {
  int32_t v[kLanes];
};
template <bool kOdd>
QUIRE_INLINE GroupScale ScaleOf(const BytePairs& pairs) {
  GroupScale scale;
  for (int i = 0; i < kLanes; ++i) scale.v[i] = pairs.v[2 * i + (kOdd ? 1 : 0)];
  return scale;
}
QUIRE_INLINE GroupScale SetScale(int scale) {
  GroupScale result;
  for (int i = 0; i < kLanes; ++i) result.v[i] = scale;
  return result;
}
QUIRE_INLINE IntVec AddScaled(IntVec total, SpanSums span, GroupScale scale) {
  for (int i = 0; i < kLanes; ++i) total.v[i] += span.v[i] * uint32_t(scale.v[i]);
  return total;
}
QUIRE_INLINE IntVec Subtract(IntVec a, IntVec b, int shift) {
  for (int i = 0; i < kLanes; ++i) a.v[i] -= b.v[i] << shift;
  return a;
}

#endif

// The numbers of codes with NumberOffset, or their low or their high halves.
enum class NumberPart { kWhole, kLow, kHigh };
struct CodeTable {
  alignas(16) uint8_t numbers[16];
};
template <BlockType kType, NumberPart kPart>
constexpr CodeTable MakeCodeTable() {
  CodeTable table{};
  for (int code = 0; code < 16; ++code) {
    const int number = CodedNumbers(kType)[code] + NumberOffset(kType);
    table.numbers[code] = uint8_t(kPart == NumberPart::kWhole ? number
                                  : kPart == NumberPart::kLow ? number & 15
                                                              : number >> 4);
  }
  return table;
}
template <BlockType kType, NumberPart kPart>
constexpr CodeTable kCodeTable = MakeCodeTable<kType, kPart>();

// Reads the numbers of a type. A group is kSpans spans of kSpanQuads quads whose sums fit into SpanSums. With words, a
// group of numbers of 8 bits has each quad twice: in the first spans the low halves of its bytes, in the others the
// high halves.
template <BlockType kType>
struct BlockNumberReader {
  static constexpr BlockPanel kPanel = BlockPanelOf(kType);
  static constexpr bool kHasCodes = CodedNumbers(kType) != nullptr;
  static constexpr bool kHasHalves = kAddsWords && LargestNumber(kType) > 127;
  // Offsets as constants, because a call could become a symbol that several instruction sets define.
  static constexpr int kLineBytes = kPanel.line_bytes, kLineQuads = kPanel.line_columns / 4;
  static constexpr int kGroupBytes = kPanel.group_bytes(), kGroupQuads = kPanel.group / 4;
  static constexpr int kLargest = kHasHalves ? 15 : LargestNumber(kType);
  static constexpr int kPairSum = kLargest * 127 * 2;
  static constexpr int kMostQuads = kAddsWords ? int(std::bit_floor(32767u / unsigned(kPairSum))) : kGroupQuads;
  static constexpr int kSpanQuads = kMostQuads < kGroupQuads ? kMostQuads : kGroupQuads;
  static constexpr int kSpans = kGroupQuads / kSpanQuads * (kHasHalves ? 2 : 1);
  static_assert(kSpanQuads > 0);

  // Whether a span has high halves, whose sum counts 16 times.
  static constexpr bool IsHigh(int span) { return kHasHalves && span * kSpanQuads >= kGroupQuads; }
  // The quad of x that quad kQuad of the spans multiplies.
  static constexpr int InputQuad(int quad) { return quad % kGroupQuads; }
  // `lines` are those of a group of a panel.
  template <int kQuad>
  static QUIRE_INLINE NibbleQuads Read(const uint8_t* lines, int half) {
    const uint8_t* const line = lines + (kQuad % kGroupQuads / kLineQuads * 2 + half) * kLineBytes;
    constexpr int kInLine = kQuad % kLineQuads;
    if constexpr (kHasCodes) {
      constexpr NumberPart kPart = !kHasHalves            ? NumberPart::kWhole
                                   : kQuad >= kGroupQuads ? NumberPart::kHigh
                                                          : NumberPart::kLow;
      return LookUp(kCodeTable<kType, kPart>.numbers, LoadNibbles<kInLine % 2 != 0>(line));
    } else if constexpr (kHasHalves) {
      return LoadNibbles<(kQuad >= kGroupQuads)>(line);
    } else if constexpr (kType == BlockType::kQ8_0) {
      return LoadLine(line);
    } else if constexpr (kType == BlockType::kQ4_K) {
      return LoadNibbles<kInLine % 2 != 0>(line);
    } else {
      constexpr int kUpper = kType == BlockType::kQ6_K ? 2 : 1;  // Bits above the fourth.
      return JoinBits<kUpper * kInLine>(LoadNibbles<kInLine % 2 != 0>(line + kInLine / 2 * kQuadBytes),
                                        LoadLine(line + kLineBytes - kQuadBytes), ((1 << kUpper) - 1) << 4);
    }
  }
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_BLOCK_PRODUCTS_H_
