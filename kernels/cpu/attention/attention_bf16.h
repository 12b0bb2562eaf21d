// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_BF16_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_BF16_H_

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/attention/attention_pairs.h"

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// The two matrix products of attention with VDPBF16PS, which computes in each lane
// sums += a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1].
// Lanes are tokens of K or dimensions of V. All lanes use the same pair of the query or weight row. Every sum adds its
// pairs in ascending order, so it does not depend on the block of rows that contains it.
class DotProducts {
 public:
  void Configure(int) {}

  // scores[row][token] = query * K.
  void Score(const BFloat16* queries, int count, const PairUnits& tile, float* scores) {
    for (int row = 0; row < count; row += kRows) {
      ScoreRows(queries + int64_t{row} * tile.padded_dim, Min(count - row, kRows), tile,
                scores + row * kAttentionTileTokens);
    }
  }

  // values[row] += weights[row] * V.
  void AddValues(const BFloat16* weights, int count, const PairUnits& tile, float* values) {
    for (int row = 0; row < count; row += kRows) {
      AddRows(weights + row * kAttentionTileTokens, Min(count - row, kRows), tile,
              values + int64_t{row} * tile.padded_dim);
    }
  }

 private:
  // Size of a block of sums: kRows rows by kUnits units of tokens (scores), or by kVecs vectors of dimensions (values).
  static constexpr int kRows = 4, kUnits = kUnitsPerTile, kVecs = 4;

  static QUIRE_INLINE __m512bh LoadPairs(const BFloat16* from) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from));
  }
  // Repeats the pair in all lanes.
  static QUIRE_INLINE __m512bh RepeatPair(const BFloat16* from) {
    int pair;
    memcpy(&pair, from, sizeof(pair));
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }

  void ScoreRows(const BFloat16* queries, int count, const PairUnits& tile, float* scores) {
    if (tile.begin == 0 && tile.end == kUnits) return DispatchScore<kRows, kUnits>(queries, count, tile, 0, scores);
    for (int u = tile.begin; u < tile.end; ++u) DispatchScore<kRows, 1>(queries, count, tile, u, scores);
  }

  template <int kCount, int kUnits>
  void DispatchScore(const BFloat16* queries, int count, const PairUnits& tile, int first, float* scores) {
    if (count == kCount) return ScoreBlock<kCount, kUnits>(queries, tile, first, scores);
    if constexpr (kCount > 1) DispatchScore<kCount - 1, kUnits>(queries, count, tile, first, scores);
  }

  template <int kCount, int kUnits>
  void ScoreBlock(const BFloat16* queries, const PairUnits& tile, int first, float* scores) {
    __m512 sums[kCount][kUnits];
    Unroll<kCount>([&]<int r>() __attribute__((always_inline)) {
      Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) { sums[r][u] = _mm512_setzero_ps(); });
    });
    for (int d = 0; d < tile.padded_dim; d += 2) {
      if (d % 4 == 0) tile.next->FetchStep();
      __m512bh k[kUnits];
      Unroll<kUnits>([&]<int u>()
                         __attribute__((always_inline)) { k[u] = LoadPairs(tile.k[first + u] + d * kUnitTokens); });
      Unroll<kCount>([&]<int r>() __attribute__((always_inline)) {
        const __m512bh q = RepeatPair(queries + r * tile.padded_dim + d);
        Unroll<kUnits>([&]<int u>()
                           __attribute__((always_inline)) { sums[r][u] = _mm512_dpbf16_ps(sums[r][u], q, k[u]); });
      });
    }
    Unroll<kCount>([&]<int r>() __attribute__((always_inline)) {
      Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) {
        _mm512_storeu_ps(scores + r * kAttentionTileTokens + (first + u) * kUnitTokens, sums[r][u]);
      });
    });
  }

  void AddRows(const BFloat16* weights, int count, const PairUnits& tile, float* values) {
    int column = 0;
    for (; column + kVecs * kLanes <= tile.padded_dim; column += kVecs * kLanes) {
      DispatchAdd<kRows, kVecs>(weights, count, tile, column, values);
    }
    for (; column < tile.padded_dim; column += kLanes) {
      DispatchAdd<kRows, 1>(weights, count, tile, column, values);
    }
  }

  template <int kCount, int kVecs>
  void DispatchAdd(const BFloat16* weights, int count, const PairUnits& tile, int column, float* values) {
    if (count == kCount) return AddBlock<kCount, kVecs>(weights, tile, column, values);
    if constexpr (kCount > 1) DispatchAdd<kCount - 1, kVecs>(weights, count, tile, column, values);
  }

  template <int kCount, int kVecs>
  void AddBlock(const BFloat16* weights, const PairUnits& tile, int column, float* values) {
    const int dim = tile.padded_dim;
    __m512 sums[kCount][kVecs];
    Unroll<kCount>([&]<int r>() __attribute__((always_inline)) {
      Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
        sums[r][i] = _mm512_loadu_ps(values + r * dim + column + i * kLanes);
      });
    });
    for (int u = tile.begin; u < tile.end; ++u) {
      const BFloat16* unit = tile.v[u] + column * 2;
      for (int token = 0; token < kUnitTokens; token += 2) {
        if (token % 4 == 0) tile.next->FetchStep();
        __m512bh v[kVecs];
        Unroll<kVecs>([&]<int i>()
                          __attribute__((always_inline)) { v[i] = LoadPairs(unit + token * dim + i * 2 * kLanes); });
        Unroll<kCount>([&]<int r>() __attribute__((always_inline)) {
          const __m512bh weight = RepeatPair(weights + r * kAttentionTileTokens + u * kUnitTokens + token);
          Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
            sums[r][i] = _mm512_dpbf16_ps(sums[r][i], weight, v[i]);
          });
        });
      }
    }
    Unroll<kCount>([&]<int r>() __attribute__((always_inline)) {
      Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
        _mm512_storeu_ps(values + r * dim + column + i * kLanes, sums[r][i]);
      });
    });
  }
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_BF16_H_
