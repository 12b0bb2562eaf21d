// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_AMX_H_
#define QUIRE_KERNELS_CPU_ATTENTION_AMX_H_

#include "kernels/cpu/amx_tile.h"
#include "kernels/cpu/attention_pairs.h"

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// The two matrix products of attention on AMX tiles. The units of the pool are stored so that they can be loaded
// directly as B tiles. 32 dimensions of K are a tile of 16 pairs by 16 tokens. 16 dimensions of V are a tile of 8 pairs
// of tokens by 16 dimensions.
class AmxProducts {
 public:
  ~AmxProducts() { ReleaseTiles(); }

  // Sets the tile shapes for this many rows of queries.
  void Configure(int rows) {
    if (rows == rows_) return;
    rows_ = rows;
    TileShapes shapes;
    for (int sums = 0; sums < kNumSums; ++sums) shapes.Set(sums, rows, kTileRowBytes);
    shapes.Set(kWideA, rows, kTileRowBytes);
    shapes.Set(kTallB, kTileRows, kTileRowBytes);
    shapes.Set(kNarrowA, rows, kTileRowBytes / 2);
    shapes.Set(kShortB, kTileRows / 2, kTileRowBytes);
    ConfigureTiles(shapes);
  }

  // scores[row][token] = query * K.
  void Score(const BFloat16* queries, int, const PairUnits& tile, float* scores) {
    if (tile.begin == 0 && tile.end == kUnitsPerTile) return ScoreUnits<kUnitsPerTile>(queries, tile, 0, scores);
    for (int u = tile.begin; u < tile.end; ++u) ScoreUnits<1>(queries, tile, u, scores);
  }

  // values[row] += weights[row] * V.
  void AddValues(const BFloat16* weights, int, const PairUnits& tile, float* values) {
    int column = 0;
    for (; column + kNumSums * kLanes <= tile.padded_dim; column += kNumSums * kLanes) {
      AddColumns<kNumSums>(weights, tile, column, values);
    }
    for (; column < tile.padded_dim; column += kLanes) AddColumns<1>(weights, tile, column, values);
  }

 private:
  static constexpr int kNumSums = 4;
  // The rows of the wide A tile have 32 bfloat16, and the tall B tile has 16 rows of pairs. The others have half as
  // many.
  static constexpr int kWideA = 4, kTallB = 5, kNarrowA = 6, kShortB = 7;

  template <int kUnits>
  void ScoreUnits(const BFloat16* queries, const PairUnits& tile, int first, float* scores) {
    const int dim = tile.padded_dim;
    Unroll<kUnits>([]<int u>() __attribute__((always_inline)) { ZeroTile<u>(); });
    int d = 0;
    for (; d + 2 * kLanes <= dim; d += 2 * kLanes) {
      LoadTile<kWideA>(queries + d, dim * 2);
      Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) {
        LoadTile<kTallB>(tile.k[first + u] + d * kUnitTokens, kTileRowBytes);
        tile.next->FetchStep();
        MultiplyTiles<u, kWideA, kTallB>();
      });
    }
    if (d < dim) {
      LoadTile<kNarrowA>(queries + d, dim * 2);
      Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) {
        LoadTile<kShortB>(tile.k[first + u] + d * kUnitTokens, kTileRowBytes);
        tile.next->FetchStep();
        MultiplyTiles<u, kNarrowA, kShortB>();
      });
    }
    Unroll<kUnits>(
        [&]<int u>() { StoreTile<u>(scores + (first + u) * kUnitTokens, kAttentionTileTokens * sizeof(float)); });
  }

  template <int kVecs>
  void AddColumns(const BFloat16* weights, const PairUnits& tile, int column, float* values) {
    const int dim = tile.padded_dim;
    Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) { LoadTile<i>(values + column + i * kLanes, dim * 4); });
    for (int u = tile.begin; u < tile.end; ++u) {
      LoadTile<kNarrowA>(weights + u * kUnitTokens, kAttentionTileTokens * 2);
      Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
        const int at = (column + i * kLanes) * 2;
        LoadTile<kShortB>(tile.v[u] + at, dim * 4);
        tile.next->FetchStep();
        MultiplyTiles<i, kNarrowA, kShortB>();
      });
    }
    Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) { StoreTile<i>(values + column + i * kLanes, dim * 4); });
  }

  int rows_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_AMX_H_
