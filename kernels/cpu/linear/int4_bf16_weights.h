// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_INT4_BF16_WEIGHTS_H_
#define QUIRE_KERNELS_CPU_LINEAR_INT4_BF16_WEIGHTS_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_task.h"

// Conversion of weights of 4 bits to bfloat16 (WeightFormat::kInt4Units), for sets with AVX512-BF16. A weight is
// (w - zero) * scale in float32, rounded to nearest even. A column has only 16 different weights in a group, so they
// are computed once, and VPERMW looks up 32 of them.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kMostInt4Zero = 16;

// w - zero for each w, of each zero point.
struct Int4Differences {
  alignas(64) float of[kMostInt4Zero + 1][16];

  constexpr Int4Differences() : of{} {
    for (int zero = 0; zero <= kMostInt4Zero; ++zero) {
      for (int w = 0; w < 16; ++w) of[zero][w] = float(w - zero);
    }
  }
};
constexpr Int4Differences kInt4Differences;

// Returns the 16 weights that a column of a group can have, twice, because VPERMW reads five bits of an index.
QUIRE_INLINE __m512i WeightTable(const uint8_t* group, int column) {
  const __m512 scale = _mm512_set1_ps(reinterpret_cast<const float*>(group)[column]);
  const uint8_t zero = group[kPanelColumns * sizeof(float) + column];
  const __m512 weights = _mm512_mul_ps(_mm512_load_ps(kInt4Differences.of[zero]), scale);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(weights, weights));
}

constexpr int Int4LinesOfGroup(int units_per_column) {
  return kPanelColumns * units_per_column / kInt4LineUnits;
}

// Converted weights are in two buffers: while tiles load one, vectors store to the other. A step of 32 k of a panel is
// [32 columns][32 k]. The steps of the two buffers alternate in memory, so a load never has the lowest 12 bits of its
// address in common with a store of these. Otherwise it would wait for the store.
constexpr int kConvertedElements = kInt4UnitColumns * kPanelColumns;
constexpr int kConvertedStride = 2 * kConvertedElements;  // Distance between steps of a buffer.
static_assert(kConvertedStride * sizeof(BFloat16) == 4096);

// Converts line `line` of a group of kUnits * 32 columns. `to` is the place of its first step.
template <int kUnits>
QUIRE_INLINE void ConvertLine(const uint8_t* group, int line, BFloat16* to) {
  constexpr int kColumns = kInt4LineUnits / kUnits;
  const __m512i units = _mm512_loadu_si512(group + kInt4HeaderBytes + line * kInt4LineBytes);
  Unroll<kColumns>([&]<int c>() __attribute__((always_inline)) {
    const int column = line * kColumns + c;
    const __m512i table = WeightTable(group, column);
    Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) {
      const __m512i indices = _mm512_srli_epi16(units, 4 * (c * kUnits + u));
      _mm512_storeu_si512(to + u * kConvertedStride + column * kInt4UnitColumns,
                          _mm512_permutexvar_epi16(indices, table));
    });
  });
}

// Transposes 16 x 16 elements of 32 bits. rows[i] holds row i, and then column i.
QUIRE_INLINE void Transpose(__m512i (&rows)[16]) {
  __m512i pairs[16], fours[16];
  Unroll<8>([&]<int i>() __attribute__((always_inline)) {
    pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
    pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
  });
  // fours[4 q + j] has, in quarter i, column 4 i + j of the rows 4 q .. 4 q + 3.
  Unroll<4>([&]<int q>() __attribute__((always_inline)) {
    fours[4 * q] = _mm512_unpacklo_epi64(pairs[4 * q], pairs[4 * q + 2]);
    fours[4 * q + 1] = _mm512_unpackhi_epi64(pairs[4 * q], pairs[4 * q + 2]);
    fours[4 * q + 2] = _mm512_unpacklo_epi64(pairs[4 * q + 1], pairs[4 * q + 3]);
    fours[4 * q + 3] = _mm512_unpackhi_epi64(pairs[4 * q + 1], pairs[4 * q + 3]);
  });
  Unroll<4>([&]<int j>() __attribute__((always_inline)) {
    constexpr int kEven = 0x88, kOdd = 0xdd;  // Quarters 0 and 2, or 1 and 3, of both operands.
    const __m512i even_upper = _mm512_shuffle_i32x4(fours[j], fours[4 + j], kEven);
    const __m512i even_lower = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], kEven);
    const __m512i odd_upper = _mm512_shuffle_i32x4(fours[j], fours[4 + j], kOdd);
    const __m512i odd_lower = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], kOdd);
    rows[j] = _mm512_shuffle_i32x4(even_upper, even_lower, kEven);
    rows[8 + j] = _mm512_shuffle_i32x4(even_upper, even_lower, kOdd);
    rows[4 + j] = _mm512_shuffle_i32x4(odd_upper, odd_lower, kEven);
    rows[12 + j] = _mm512_shuffle_i32x4(odd_upper, odd_lower, kOdd);
  });
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_INT4_BF16_WEIGHTS_H_
