// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_KERNEL_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_KERNEL_H_

#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/vector_math.h"
#include "kernels/softmax_state.h"

// Paged attention over 16-token units. In a unit the lanes of a vector are tokens for K and head dimensions for V:
//   float32, float16: K [head_dim][16], V [16][head_dim]
//   bfloat16:         K [head_dim / 2][16][2], V [8][head_dim][2]
//
// The scores, softmax and sums of a row use only the row's own query and its visible tokens. They are computed in
// ascending order, in tiles at absolute positions. Processing several rows at once shares the loads of K and V and
// changes no bit.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kUnitTokens = 16;
constexpr float kMinusInfinity = -__builtin_inff();

// The number of rows processed together, of units of scores per pass, and of vectors of output per pass. Rows times
// units (or vectors) is the number of accumulators.
constexpr int kMaxChunkRows = kRegisters >= 32 ? 8 : kRegisters >= 8 ? 4 : 2;
constexpr int ScoreUnits(int rows) {
  if (kRegisters >= 32) return rows <= 4 ? 4 : 2;
  if (kRegisters >= 8) return rows == 1 ? 4 : rows == 2 ? 2 : 1;
  return 1;
}
constexpr int ValueVecs(int rows) {
  if (kRegisters >= 32) return rows == 1 ? 8 : rows <= 4 ? 4 : 2;
  if (kRegisters >= 8) return rows == 1 ? 4 : rows == 2 ? 2 : 1;
  return rows == 1 ? 2 : 1;
}

// The units of one tile. `ahead` is the distance in the list to the units of the next tile; it is 0 when there is no
// next tile or when it has been fetched already. For every cache line that is used here, one line of the next tile is
// prefetched, which hides the memory latency. The hardware prefetcher cannot do this, because blocks lie anywhere.
struct TileUnits {
  const void* const* units;
  int count;
  int ahead;
};

template <typename T>
struct UnitData {
  const T* here;
  const T* next;
};

template <typename T>
QUIRE_INLINE UnitData<T> UnitAt(const TileUnits& tile, int unit, int64_t element) {
  return {static_cast<const T*>(tile.units[unit]) + element,
          static_cast<const T*>(tile.units[unit + tile.ahead]) + element};
}

template <typename T>
QUIRE_INLINE Vec LoadAhead(const UnitData<T>& data, int element) {
  __builtin_prefetch(data.next + element);
  return Load(data.here + element);
}
QUIRE_INLINE void LoadPairsAhead(const UnitData<BFloat16>& data, int element, Vec* even, Vec* odd) {
  __builtin_prefetch(data.next + element);
  *even = LoadEven(data.here + element);
  *odd = LoadOdd(data.here + element);
}

// --- Scores ---

template <int kRows, int kUnits>
struct Scores {
  Vec of[kRows][kUnits];
};

template <int kRows, int kUnits>
QUIRE_INLINE void AddProducts(Scores<kRows, kUnits>* scores, const float* const* queries, int d,
                              const Vec (&k)[kUnits]) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const Vec q = Set(queries[r][d]);
    Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) { scores->of[r][u] = Fma(q, k[u], scores->of[r][u]); });
  });
}

template <int kRows, int kUnits, typename T>
QUIRE_INLINE void Multiply(Scores<kRows, kUnits>* scores, const float* const* queries,
                           const UnitData<T> (&unit)[kUnits], int head_dim) {
  Vec k[kUnits];
  for (int d = 0; d < head_dim; ++d) {
    Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) { k[u] = LoadAhead(unit[u], d * kUnitTokens); });
    AddProducts(scores, queries, d, k);
  }
}

template <int kRows, int kUnits>
QUIRE_INLINE void Multiply(Scores<kRows, kUnits>* scores, const float* const* queries,
                           const UnitData<BFloat16> (&unit)[kUnits], int head_dim) {
  Vec even[kUnits], odd[kUnits];
  for (int d = 0; d < head_dim; d += 2) {
    Unroll<kUnits>([&]<int u>()
                       __attribute__((always_inline)) { LoadPairsAhead(unit[u], d * kUnitTokens, &even[u], &odd[u]); });
    AddProducts(scores, queries, d, even);
    AddProducts(scores, queries, d + 1, odd);
  }
}

// scores[r][token] = q_r k for the units [first, first + kUnits) of a tile. `scores` has a row of 64 floats per query.
template <int kRows, int kUnits, typename T>
QUIRE_INLINE void ScoreUnitsOf(const AttentionTask& task, int row, const TileUnits& tile, int first, float* scores) {
  Scores<kRows, kUnits> sums;
  UnitData<T> unit[kUnits];
  Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) { unit[u] = UnitAt<T>(tile, first + u, 0); });
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) { sums.of[r][u] = Zero(); });
  });
  Multiply<kRows, kUnits>(&sums, task.queries + row, unit, task.head_dim);
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kUnits>([&]<int u>() __attribute__((always_inline)) {
      Store(scores + r * kAttentionTileTokens + (first + u) * kUnitTokens, sums.of[r][u]);
    });
  });
}

template <int kRows, typename T>
QUIRE_INLINE void ScoreTile(const AttentionTask& task, int row, const TileUnits& tile, float* scores) {
  constexpr int kUnits = ScoreUnits(kRows);
  int u = 0;
  for (; u + kUnits <= tile.count; u += kUnits) ScoreUnitsOf<kRows, kUnits, T>(task, row, tile, u, scores);
  if constexpr (kUnits > 1) {
    for (; u < tile.count; ++u) ScoreUnitsOf<kRows, 1, T>(task, row, tile, u, scores);
  }
}

// --- Softmax ---

// Returns a mask of the lanes of unit `unit` whose tokens are in [begin, end).
QUIRE_INLINE uint32_t VisibleLanes(int unit, int begin, int end) {
  const int first = Max(0, Min(kUnitTokens, begin - unit * kUnitTokens));
  const int last = Max(0, Min(kUnitTokens, end - unit * kUnitTokens));
  return first < last ? (1u << last) - (1u << first) : 0;
}

QUIRE_INLINE float ExpOf(float x) {
  return First(Exp(Set(x)));
}

// Turns one row's raw scores of a tile into the weights exp(cap(score * scale) - max), which are 0 for tokens that the
// row does not see. Updates the row's max and sum. Returns the factor for the values that the row has summed so far.
QUIRE_INLINE float Softmax(const AttentionTask& task, int row, int begin, int end, int num_units, float* scores) {
  const Vec scale = Set(task.scale);
  Vec largest = Set(kMinusInfinity);
  for (int u = 0; u < num_units; ++u) {
    Vec scaled = Mul(Load(scores + u * kUnitTokens), scale);
    if (task.softcap > 0) scaled = Softcap(scaled, task.softcap);
    const Vec visible = Select(VisibleLanes(u, begin, end), Set(kMinusInfinity), scaled);
    Store(scores + u * kUnitTokens, visible);
    largest = Max(largest, visible);
  }
  const float tile_max = ReduceMax(largest);
  SoftmaxState* state = &task.states[row];
  const float old_max = state->max;
  const float max = old_max > tile_max ? old_max : tile_max;
  Vec sum = Zero();
  for (int u = 0; u < num_units; ++u) {
    const Vec weight = Exp(Sub(Load(scores + u * kUnitTokens), Set(max)));
    Store(scores + u * kUnitTokens, weight);
    sum = Add(sum, weight);
  }
  const float factor = ExpOf(old_max - max);
  state->max = max;
  state->sum = state->sum * factor + ReduceAdd(sum);
  return factor;
}

// --- Values ---

template <int kRows, int kVecs>
struct Values {
  Vec of[kRows][kVecs];
};

template <int kRows, int kVecs>
QUIRE_INLINE void AddWeighted(Values<kRows, kVecs>* values, const float* weights, int token, const Vec (&v)[kVecs]) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const Vec weight = Set(weights[r * kAttentionTileTokens + token]);
    Unroll<kVecs>([&]<int i>()
                      __attribute__((always_inline)) { values->of[r][i] = Fma(weight, v[i], values->of[r][i]); });
  });
}

// Adds the tokens [begin, end) of one unit. `v` points to the unit's V at the first of the columns; `weights` points to
// the weight of the unit's token 0.
template <int kRows, int kVecs, typename T>
QUIRE_INLINE void AddUnit(Values<kRows, kVecs>* values, const float* weights, const UnitData<T>& v, int begin, int end,
                          int padded_dim) {
  Vec row[kVecs];
  for (int token = begin; token < end; ++token) {
    Unroll<kVecs>([&]<int i>()
                      __attribute__((always_inline)) { row[i] = LoadAhead(v, token * padded_dim + i * kLanes); });
    AddWeighted(values, weights, token, row);
  }
}

template <int kRows, int kVecs>
QUIRE_INLINE void AddUnit(Values<kRows, kVecs>* values, const float* weights, const UnitData<BFloat16>& v, int begin,
                          int end, int padded_dim) {
  Vec even[kVecs], odd[kVecs];
  for (int token = begin & ~1; token < end; token += 2) {
    Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
      LoadPairsAhead(v, token * padded_dim + i * 2 * kLanes, &even[i], &odd[i]);
    });
    // The invisible half of a pair may be garbage. Even weight 0 would not suppress it if it is infinite or NaN.
    if (token >= begin) AddWeighted(values, weights, token, even);
    if (token + 1 < end) AddWeighted(values, weights, token + 1, odd);
  }
}

template <typename T>
constexpr int kTokensPerRow = 1;
template <>
constexpr int kTokensPerRow<BFloat16> = 2;

// values[r] = values[r] * factors[r] + sum of weight * v over tokens [begin, end) of a tile, for the columns
// [column, column + kVecs * 16).
template <int kRows, int kVecs, typename T>
QUIRE_INLINE void AddColumns(const AttentionTask& task, int row, const TileUnits& tile, int begin, int end,
                             const float* factors, const float* weights, int column) {
  Values<kRows, kVecs> sums;
  float* out = task.values + int64_t{row} * task.padded_dim + column;
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const Vec factor = Set(factors[r]);
    Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
      sums.of[r][i] = Mul(Load(out + r * task.padded_dim + i * kLanes), factor);
    });
  });
  for (int u = begin / kUnitTokens; u * kUnitTokens < end; ++u) {
    const UnitData<T> v = UnitAt<T>(tile, u, kUnitTokens * task.padded_dim + column * kTokensPerRow<T>);
    const int first = Max(0, begin - u * kUnitTokens), last = Min(kUnitTokens, end - u * kUnitTokens);
    AddUnit<kRows, kVecs>(&sums, weights + u * kUnitTokens, v, first, last, task.padded_dim);
  }
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int i>()
                      __attribute__((always_inline)) { Store(out + r * task.padded_dim + i * kLanes, sums.of[r][i]); });
  });
}

template <int kRows, typename T>
void AddTile(const AttentionTask& task, int row, const TileUnits& tile, int begin, int end, const float* factors,
             const float* weights) {
  constexpr int kVecs = ValueVecs(kRows);
  const int num_vecs = task.padded_dim / kLanes;
  int vec = 0;
  for (; vec + kVecs <= num_vecs; vec += kVecs) {
    AddColumns<kRows, kVecs, T>(task, row, tile, begin, end, factors, weights, vec * kLanes);
  }
  if constexpr (kVecs > 1) {
    for (; vec < num_vecs; ++vec) {
      AddColumns<kRows, 1, T>(task, row, tile, begin, end, factors, weights, vec * kLanes);
    }
  }
}

// --- Tiles ---

// Attends rows [row, row + kRows) to the tile that starts at unit `first_unit`.
template <int kRows, typename T>
void AttendTile(const AttentionTask& task, int row, int first_unit) {
  const int num_units = Min(kAttentionTileUnits, task.num_units - first_unit);
  const int first_token = task.first_token + first_unit * kUnitTokens;
  // The first rows prefetch the next tile for all rows.
  const int num_listed = task.num_units + task.num_following;
  const bool fetches_next = row == 0 && first_unit + 2 * kAttentionTileUnits <= num_listed;
  const TileUnits tile = {task.units + first_unit, num_units, fetches_next ? kAttentionTileUnits : 0};
  int begin[kRows], end[kRows];
  bool all_alike = true, any = false;
  for (int r = 0; r < kRows; ++r) {
    begin[r] = Max(0, task.visible_begin[row + r] - first_token);
    end[r] = Min(num_units * kUnitTokens, task.visible_end[row + r] - first_token);
    all_alike = all_alike && begin[r] == begin[0] && end[r] == end[0];
    any = any || begin[r] < end[r];
  }
  if (!any) return;

  float scores[kRows * kAttentionTileTokens];
  float factors[kRows] = {};
  ScoreTile<kRows, T>(task, row, tile, scores);
  for (int r = 0; r < kRows; ++r) {
    if (begin[r] >= end[r]) continue;
    factors[r] = Softmax(task, row + r, begin[r], end[r], num_units, scores + r * kAttentionTileTokens);
  }
  if (all_alike) return AddTile<kRows, T>(task, row, tile, begin[0], end[0], factors, scores);
  // Rows that see different tokens are processed one by one, so that no row reads the V of a token after its own
  // position.
  for (int r = 0; r < kRows; ++r) {
    if (begin[r] >= end[r]) continue;
    AddTile<1, T>(task, row + r, tile, begin[r], end[r], factors + r, scores + r * kAttentionTileTokens);
  }
}

template <int kRows, typename T>
void DispatchTile(const AttentionTask& task, int row, int rows, int first_unit) {
  if (rows == kRows) return AttendTile<kRows, T>(task, row, first_unit);
  if constexpr (kRows > 1) DispatchTile<kRows - 1, T>(task, row, rows, first_unit);
}

// Every tile is applied to all rows while it is in the cache.
template <typename T>
void Attend(const AttentionTask& task) {
  for (int unit = 0; unit < task.num_units; unit += kAttentionTileUnits) {
    for (int row = 0; row < task.num_rows; row += kMaxChunkRows) {
      DispatchTile<kMaxChunkRows, T>(task, row, Min(kMaxChunkRows, task.num_rows - row), unit);
    }
  }
}

// --- Joining parts ---

// The weights of 16 rows are computed together.
inline void MergeSoftmax(int num_rows, SoftmaxState* into, float* into_values, const SoftmaxState* from,
                         const float* from_values, int padded_dim) {
  for (int first = 0; first < num_rows; first += kLanes) {
    const int count = Min(kLanes, num_rows - first);
    float into_weights[kLanes] = {}, from_weights[kLanes] = {}, maxima[kLanes] = {};
    for (int i = 0; i < count; ++i) {
      into_weights[i] = into[first + i].max;
      from_weights[i] = from[first + i].max;
    }
    const Vec into_max = Load(into_weights), from_max = Load(from_weights), max = Max(into_max, from_max);
    Store(maxima, max);
    Store(into_weights, Exp(Sub(into_max, max)));
    Store(from_weights, Exp(Sub(from_max, max)));
    for (int i = 0; i < count; ++i) {
      const int row = first + i;
      if (from[row].sum == 0) continue;
      into[row] = {maxima[i], into[row].sum * into_weights[i] + from[row].sum * from_weights[i]};
      float* const values = into_values + int64_t{row} * padded_dim;
      const float* const others = from_values + int64_t{row} * padded_dim;
      for (int d = 0; d < padded_dim; d += kLanes) {
        Store(values + d, Fma(Load(others + d), Set(from_weights[i]), Mul(Load(values + d), Set(into_weights[i]))));
      }
    }
  }
}

inline void FinishSoftmax(SoftmaxState state, const float* values, float* out, int dim) {
  const Vec sum = Set(state.sum);
  for (int d = 0; d < dim; d += kLanes) StoreFirst(out + d, Min(kLanes, dim - d), Div(Load(values + d), sum));
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_KERNEL_H_
