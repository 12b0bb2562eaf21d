// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_INT8_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_INT8_H_

#include "kernels/cpu/attention/attention_kernel.h"
#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/word_products.h"
#include "kernels/cpu/linear/quantize_kernel.h"
#include "kernels/kv_layout.h"

// Paged attention over units of int8 K and V with their scales (kernels/kv_layout.h). The products of both matrices are
// sums of whole numbers, which are exact. Their other factor has 16 bits, so that it loses little:
//   - A query is rounded once: q[d] * (32767 / m), where m is its largest magnitude. The score of a token is
//     float(sum of rounded q * k) * ((m / 32767 * task.scale) * scale of k), which is then capped if the model says so.
//   - In each tile of 64 tokens, the weight exp(score - max) of a token is multiplied by the scale of its V, and these
//     products are rounded like a query. A tile adds float(sum of rounded products * v) * (m / 32767) to the values.
// The sum of the weights uses the weights in float32.
//
// All bytes of K and V are finite numbers, so a token that a row does not see needs no more than a weight of 0. The
// scales of such tokens may be anything, also NaN. A NaN in a scale that a row sees makes the row's result NaN.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// A sum over all dimensions or over a tile fits into 31 bits.
static_assert(int64_t{kMaxWord} * 127 * kMaxHeadDim <= 0x7fffffff && kAttentionTileTokens <= kMaxHeadDim);

// Queries of up to kMaxAttentionRows rows.
struct alignas(64) RoundedQueries {
  int16_t values[kMaxAttentionRows * kMaxHeadDim];  // [rows, padded_dim]
  float scales[kMaxAttentionRows];                  // With the scale of the scores.
};

// Data of the rows that are processed together, for one tile.
struct alignas(64) Int8Rows {
  float scores[kMaxChunkRows * kAttentionTileTokens];
  int16_t weights[kMaxChunkRows * kAttentionTileTokens];
  float factors[kMaxChunkRows];  // Factors for the values that the rows have summed so far.
  float scales[kMaxChunkRows];   // Factors for the tile's sums of weights * v.
};

// Returns the scales of K, or of V, of a unit: [16].
QUIRE_INLINE const float* KeyScales(const void* unit, int padded_dim) {
  return reinterpret_cast<const float*>(static_cast<const char*>(unit) + 2 * kUnitTokens * padded_dim);
}
QUIRE_INLINE const float* ValueScales(const void* unit, int padded_dim) {
  return KeyScales(unit, padded_dim) + kUnitTokens;
}

// Rounds a query to words, with zeros up to padded_dim.
QUIRE_INLINE void RoundQuery(const float* query, const AttentionTask& task, int16_t* words, float* scale) {
  const float largest = LargestMagnitude(query, task.head_dim);
  const bool is_zero = !(largest >= kSmallestMagnitude);  // Also true for a NaN.
  const Vec inverse = Set(is_zero ? 0.0f : kMaxWord / largest);
  *scale = (is_zero ? 0 * largest : largest / kMaxWord) * task.scale;
  for (int d = 0; d < task.padded_dim; d += kLanes) {
    const Vec part = LoadFirst(query + d, Max(0, Min(kLanes, task.head_dim - d)));
    StoreWords(words + d, is_zero ? Zero() : Round(Mul(part, inverse)));
  }
}

// --- Scores ---

// Computes the scores of the units [first, first + kUnits) of a tile. `words` and `scales` begin with the first row.
template <int kRows, int kUnits>
QUIRE_INLINE void ScoreByteUnits(const int16_t* words, const float* scales, const TileUnits& tile, int first,
                                 int padded_dim, float* scores) {
  IntVec sums[kRows][kUnits];
  UnitData<int8_t> unit[kUnits];
  Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) {
    unit[u] = UnitAt<int8_t>(tile, first + u, 0);
    __builtin_prefetch(KeyScales(unit[u].next, padded_dim));
    __builtin_prefetch(ValueScales(unit[u].next, padded_dim));
  });
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) { sums[r][u] = SetInt(0); });
  });
  // Two pairs of dimensions fill a cache line.
  for (int d = 0; d < padded_dim; d += 4) {
    Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) { __builtin_prefetch(unit[u].next + d * kUnitTokens); });
    Unroll<2>([&]<int pair>() __attribute__((always_inline)) {
      BytePairs k[kUnits];
      Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) {
        k[u] = LoadBytePairs(unit[u].here + (d + 2 * pair) * kUnitTokens);
      });
      Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
        const int16_t* q = words + r * padded_dim + d + 2 * pair;
        Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) { sums[r][u] = AddProducts(sums[r][u], k[u], q); });
      });
    });
  }
  Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) {
    const Vec k_scale = Load(KeyScales(unit[u].here, padded_dim));
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      Store(scores + r * kAttentionTileTokens + (first + u) * kUnitTokens,
            Mul(ToFloats(sums[r][u]), Mul(Set(scales[r]), k_scale)));
    });
  });
}

template <int kRows>
QUIRE_INLINE void ScoreByteTile(const int16_t* words, const float* scales, const TileUnits& tile, int padded_dim,
                                float* scores) {
  constexpr int kUnits = ScoreUnits(kRows);
  int u = 0;
  for (; u + kUnits <= tile.count; u += kUnits) {
    ScoreByteUnits<kRows, kUnits>(words, scales, tile, u, padded_dim, scores);
  }
  if constexpr (kUnits > 1) {
    for (; u < tile.count; ++u) ScoreByteUnits<kRows, 1>(words, scales, tile, u, padded_dim, scores);
  }
}

// --- Softmax ---

// Turns the scores of row `r` of the chunk, which is row `row` of the task, into words. The row sees the tokens
// [begin, end) of the tile. Updates the row's max and sum.
QUIRE_INLINE void SoftmaxToWords(const AttentionTask& task, int row, const TileUnits& tile, int r, int begin, int end,
                                 Int8Rows* rows) {
  float* const scores = rows->scores + r * kAttentionTileTokens;
  int16_t* const weights = rows->weights + r * kAttentionTileTokens;
  const bool sees_all = begin == 0 && end == tile.count * kUnitTokens;
  Vec largest = Set(kMinusInfinity);
  for (int u = 0; u < tile.count; ++u) {
    Vec score = Load(scores + u * kUnitTokens);
    if (task.softcap > 0) score = Softcap(score, task.softcap);
    if (!sees_all) score = Select(VisibleLanes(u, begin, end), Set(kMinusInfinity), score);
    if (task.softcap > 0 || !sees_all) Store(scores + u * kUnitTokens, score);
    largest = Max(largest, score);
  }
  const float tile_max = ReduceMax(largest);
  SoftmaxState* state = &task.states[row];
  const float old_max = state->max;
  const float max = old_max > tile_max ? old_max : tile_max;

  Vec sum = Zero(), heaviest = Zero();
  for (int u = 0; u < tile.count; ++u) {
    const Vec weight = Exp(Sub(Load(scores + u * kUnitTokens), Set(max)));
    Vec scaled = Mul(weight, Load(ValueScales(tile.units[u], task.padded_dim)));
    if (!sees_all) scaled = Select(VisibleLanes(u, begin, end), Zero(), scaled);
    sum = Add(sum, Fma(scaled, Zero(), weight));  // Becomes NaN with a NaN among the scales.
    scaled = Max(scaled, Zero());                 // 0 instead of NaN.
    heaviest = Max(heaviest, scaled);
    Store(scores + u * kUnitTokens, scaled);
  }
  const float m = ReduceMax(heaviest);
  const bool is_zero = m < kSmallestMagnitude;
  const Vec inverse = Set(is_zero ? 0.0f : kMaxWord / m);
  for (int u = 0; u < tile.count; ++u) {
    StoreWords(weights + u * kUnitTokens, Round(Mul(Load(scores + u * kUnitTokens), inverse)));
  }
  const float factor = ExpOf(old_max - max);
  state->max = max;
  state->sum = state->sum * factor + ReduceAdd(sum);
  rows->factors[r] = factor;
  rows->scales[r] = is_zero ? 0 : m / kMaxWord;
}

// Makes row `r` of the chunk add nothing.
QUIRE_INLINE void ClearWords(const TileUnits& tile, int r, Int8Rows* rows) {
  int16_t* const weights = rows->weights + r * kAttentionTileTokens;
  for (int u = 0; u < tile.count; ++u) StoreWords(weights + u * kUnitTokens, Zero());
  rows->factors[r] = 1;
  rows->scales[r] = 0;
}

// --- Values ---

// values[r] = values[r] * factors[r] + scales[r] * sum of weight * v over the units [begin, end) of a tile, for the
// columns [column, column + kVecs * 16).
template <int kRows, int kVecs>
QUIRE_INLINE void AddByteColumns(const AttentionTask& task, int row, const TileUnits& tile, int begin, int end,
                                 const Int8Rows& rows, int column) {
  const int dim = task.padded_dim;
  IntVec sums[kRows][kVecs];
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) { sums[r][i] = SetInt(0); });
  });
  for (int u = begin; u < end; ++u) {
    const UnitData<int8_t> v = UnitAt<int8_t>(tile, u, kUnitTokens * dim + column * 2);
    for (int token = 0; token < kUnitTokens; token += 2) {
      BytePairs pairs[kVecs];
      Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
        if (i % 2 == 0) __builtin_prefetch(v.next + token * dim + i * 2 * kLanes);
        pairs[i] = LoadBytePairs(v.here + token * dim + i * 2 * kLanes);
      });
      Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
        const int16_t* words = rows.weights + r * kAttentionTileTokens + u * kUnitTokens + token;
        Unroll<kVecs>([&]<int i>()
                          __attribute__((always_inline)) { sums[r][i] = AddProducts(sums[r][i], pairs[i], words); });
      });
    }
  }
  float* out = task.values + int64_t{row} * dim + column;
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const Vec factor = Set(rows.factors[r]), scale = Set(rows.scales[r]);
    Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
      float* at = out + r * dim + i * kLanes;
      Store(at, Fma(ToFloats(sums[r][i]), scale, Mul(Load(at), factor)));
    });
  });
}

template <int kRows>
QUIRE_INLINE void AddByteTile(const AttentionTask& task, int row, const TileUnits& tile, int begin, int end,
                              const Int8Rows& rows) {
  constexpr int kVecs = ValueVecs(kRows);
  const int num_vecs = task.padded_dim / kLanes;
  int vec = 0;
  for (; vec + kVecs <= num_vecs; vec += kVecs) {
    AddByteColumns<kRows, kVecs>(task, row, tile, begin, end, rows, vec * kLanes);
  }
  if constexpr (kVecs > 1) {
    for (; vec < num_vecs; ++vec) AddByteColumns<kRows, 1>(task, row, tile, begin, end, rows, vec * kLanes);
  }
}

// --- Tiles ---

// Attends rows [row, row + kRows) of the task to the tile that starts at unit `first_unit`. `query` is the place of
// `row` in `queries`.
template <int kRows>
void AttendByteTile(const AttentionTask& task, int row, const RoundedQueries& queries, int query, int first_unit,
                    Int8Rows* rows) {
  const int num_units = Min(kAttentionTileUnits, task.num_units - first_unit);
  const int first_token = task.first_token + first_unit * kUnitTokens;
  int begin[kRows], end[kRows], first = kAttentionTileTokens, last = 0;
  for (int r = 0; r < kRows; ++r) {
    begin[r] = Max(0, task.visible_begin[row + r] - first_token);
    end[r] = Min(num_units * kUnitTokens, task.visible_end[row + r] - first_token);
    if (begin[r] >= end[r]) continue;
    first = Min(first, begin[r]);
    last = Max(last, end[r]);
  }
  if (first >= last) return;
  // The first rows prefetch the next tile for all rows.
  const int num_listed = task.num_units + task.num_following;
  const bool fetches_next = row == 0 && first_unit + 2 * kAttentionTileUnits <= num_listed;
  const TileUnits tile = {task.units + first_unit, num_units, fetches_next ? kAttentionTileUnits : 0};
  ScoreByteTile<kRows>(queries.values + query * task.padded_dim, queries.scales + query, tile, task.padded_dim,
                       rows->scores);
  for (int r = 0; r < kRows; ++r) {
    if (begin[r] < end[r]) {
      SoftmaxToWords(task, row + r, tile, r, begin[r], end[r], rows);
    } else {
      ClearWords(tile, r, rows);
    }
  }
  AddByteTile<kRows>(task, row, tile, first / kUnitTokens, (last + kUnitTokens - 1) / kUnitTokens, *rows);
}

template <int kRows>
void DispatchByteTile(const AttentionTask& task, int row, int num_rows, const RoundedQueries& queries, int query,
                      int first_unit, Int8Rows* rows) {
  if (num_rows == kRows) return AttendByteTile<kRows>(task, row, queries, query, first_unit, rows);
  if constexpr (kRows > 1) DispatchByteTile<kRows - 1>(task, row, num_rows, queries, query, first_unit, rows);
}

// Every tile is applied to up to kMaxAttentionRows rows while it is in the cache.
inline void AttendInt8(const AttentionTask& task) {
  RoundedQueries queries;
  Int8Rows rows;
  for (int first = 0; first < task.num_rows; first += kMaxAttentionRows) {
    const int end = Min(task.num_rows, first + kMaxAttentionRows);
    for (int row = first; row < end; ++row) {
      const int query = row - first;
      RoundQuery(task.queries[row], task, queries.values + query * task.padded_dim, &queries.scales[query]);
    }
    for (int unit = 0; unit < task.num_units; unit += kAttentionTileUnits) {
      for (int row = first; row < end; row += kMaxChunkRows) {
        DispatchByteTile<kMaxChunkRows>(task, row, Min(kMaxChunkRows, end - row), queries, row - first, unit, &rows);
      }
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_INT8_H_
