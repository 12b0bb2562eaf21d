// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT4_BF16_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT4_BF16_KERNEL_H_

#include <immintrin.h>

#include <bit>
#include <cstdint>

#include "kernels/cpu/linear/linear_bf16_kernel.h"
#include "kernels/cpu/linear/linear_converted_kernel.h"

// Products of bfloat16 by weights of 4 bits with VDPBF16PS. The numbers are w - zero, from -16 to 15.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Entry i is the number whose lowest five bits are i.
struct Int4NumberTable {
  alignas(64) uint16_t of[32];

  constexpr Int4NumberTable() : of{} {
    // They are exact as bfloat16, which is the upper half of a float.
    for (int i = 0; i < 32; ++i) of[i] = uint16_t(std::bit_cast<uint32_t>(float(i < 16 ? i : i - 32)) >> 16);
  }
};
constexpr Int4NumberTable kInt4NumberTable;

struct Int4Numbers {
  static constexpr int kLineColumns = kInt4LineColumns;
  static constexpr int kLineBytes = kInt4LineBytes;
  using Place = GroupPlace<kInt4HeaderBytes>;
  static QUIRE_INLINE Place PlaceOf(const uint8_t* panel, int group, int group_columns) {
    return {panel + int64_t{group} * Int4GroupBytes(group_columns)};
  }

  struct Group {
    __m512i zeros;  // The zero point of each column, twice.
  };
  struct Line {
    __m512i words;

    // The columns 2 kPair and 2 kPair + 1 are half of a byte each.
    template <int kPair>
    QUIRE_INLINE WeightPairs Pair(const Group& group) const {
      constexpr int kFirst = kPair % 2 * 2;
      const __m128i byte_of_word = _mm_setr_epi8(kFirst, -1, kFirst + 1, -1, kFirst + 4, -1, kFirst + 5, -1, kFirst + 8,
                                                 -1, kFirst + 9, -1, kFirst + 12, -1, kFirst + 13, -1);
      const __m512i halves = kPair < 2 ? words : _mm512_srli_epi16(words, 4);
      const __m512i bytes = _mm512_shuffle_epi8(halves, _mm512_broadcast_i32x4(byte_of_word));
      const __m512i numbers = _mm512_sub_epi16(_mm512_and_si512(bytes, _mm512_set1_epi16(15)), group.zeros);
      return {_mm512_permutexvar_epi16(numbers, _mm512_load_si512(kInt4NumberTable.of))};
    }
  };

  static QUIRE_INLINE Group ReadGroup(const Place& place, int vec) {
    const uint8_t* p = place.at + kScalesBytes + vec * kLanes;
    const __m512i words = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm512_or_si512(words, _mm512_slli_epi32(words, 16))};
  }
  static QUIRE_INLINE Line ReadLine(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
};

inline void LinearInt4BFloat16(const LinearTask& task) {
  LinearConverted<BFloat16, Int4Numbers>(task);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT4_BF16_KERNEL_H_
