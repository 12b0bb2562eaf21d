// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_PAIRS_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_PAIRS_H_

#include <immintrin.h>

#include "kernels/cpu/attention/attention_kernel.h"
#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/kv_layout.h"

// Paged attention over bfloat16 K and V with instructions that multiply pairs of bfloat16. Queries are scaled in
// float32 and rounded to bfloat16 once. The weights exp(score - max) of the tokens are also rounded to bfloat16.
// Scores, softmax and sums are float32.
//
// Up to 16 rows share the loads of a tile of 64 tokens. A row's numbers stay in their own lanes and their own matrix
// rows. Tokens that a row does not see have weight 0 and a finite V. Therefore a row's result does not depend on the
// other rows.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kRowsPerTile = 16;
constexpr int kUnitsPerTile = kAttentionTileUnits;

// Prefetches a tile of 64 tokens while another tile is processed. One step fetches the next two cache lines of every
// unit, which holds K and then V. Fetching only one place would make the core wait for each line. The steps are spread
// over all of the work, because the core stalls as soon as more lines are outstanding than it can track.
class NextTile {
 public:
  NextTile() = default;
  NextTile(const void* const* units, int padded_dim) : num_steps_(padded_dim / 2) {
    for (int u = 0; u < kUnitsPerTile; ++u) units_[u] = static_cast<const BFloat16*>(units[u]);
  }

  QUIRE_INLINE void FetchStep() {
    if (step_ >= num_steps_) return;
    const int line = 2 * step_ * kLineElements;
    Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) {
      __builtin_prefetch(units_[u] + line);
      __builtin_prefetch(units_[u] + line + kLineElements);
    });
    ++step_;
  }
  QUIRE_INLINE void FetchRest() {
    while (step_ < num_steps_) FetchStep();
  }

 private:
  static constexpr int kLineElements = 32;

  const BFloat16* units_[kUnitsPerTile] = {};
  int num_steps_ = 0;
  int step_ = 0;
};

// Some units of a tile of 64 tokens.
struct PairUnits {
  const BFloat16* k[kUnitsPerTile];  // [padded_dim / 2][16][2]
  const BFloat16* v[kUnitsPerTile];  // [8][padded_dim][2]
  int begin, end;                    // Range of the units that are used.
  int padded_dim;
  NextTile* next;
};

// Data that up to 16 rows need for one tile.
struct PairRows {
  const BFloat16* queries;  // [count, padded_dim]
  SoftmaxState* states;     // [count]
  float* values;            // [count, padded_dim]
  int begin[kRowsPerTile];  // Visible tokens of the tile; none when begin == end.
  int end[kRowsPerTile];
  int count;
  float softcap;
};

struct alignas(64) PairScratch {
  float scores[kRowsPerTile * kAttentionTileTokens];
  BFloat16 weights[kRowsPerTile * kAttentionTileTokens];
  BFloat16 v[kUnitsPerTile][kUnitTokens * kMaxHeadDim];
};

// --- Softmax of 16 rows ---

// Returns a vector whose lane r joins all lanes of rows[r].
template <typename Join>
QUIRE_INLINE Vec JoinLanes(const Vec (&rows)[kRowsPerTile], Join join) {
  Vec quads[4];  // Vector i holds four lanes for each of the rows i, 4 + i, 8 + i, 12 + i.
  Unroll<4>([&]<int i>() __attribute__((always_inline)) {
    const auto halves = [&](Vec a, Vec b) __attribute__((always_inline)) {
      return join(Vec{_mm512_shuffle_f32x4(a.v, b.v, 0x44)}, Vec{_mm512_shuffle_f32x4(a.v, b.v, 0xee)});
    };
    const Vec low = halves(rows[i], rows[4 + i]), high = halves(rows[8 + i], rows[12 + i]);
    quads[i] = join(Vec{_mm512_shuffle_f32x4(low.v, high.v, 0x88)}, Vec{_mm512_shuffle_f32x4(low.v, high.v, 0xdd)});
  });
  const auto lanes = [&](Vec a, Vec b) __attribute__((always_inline)) {
    return join(Vec{_mm512_shuffle_ps(a.v, b.v, 0x88)}, Vec{_mm512_shuffle_ps(a.v, b.v, 0xdd)});
  };
  return lanes(lanes(quads[0], quads[1]), lanes(quads[2], quads[3]));
}

// Computes 2^x with a relative error of at most 3e-6. Smaller x than -126 give 2^-126, because a result that is not a
// normal number would cost a hundred times more. NaN stays NaN.
QUIRE_INLINE Vec Exp2(Vec x) {
  const Vec clamped = {_mm512_max_ps(_mm512_set1_ps(-126.0f), x.v)};
  const Vec n = Round(clamped);
  const Vec r = Sub(clamped, n);
  Vec p = Set(0.009582871571183205f);
  p = Fma(p, r, Set(0.0559065006673336f));
  p = Fma(p, r, Set(0.24024099111557007f));
  p = Fma(p, r, Set(0.6931241750717163f));
  p = Fma(p, r, Set(1.0f));
  return {_mm512_scalef_ps(p.v, n.v)};
}

QUIRE_INLINE bool SeesAll(const PairRows& rows, int row) {
  return rows.begin[row] == 0 && rows.end[row] == kAttentionTileTokens;
}

// Puts `invisible` in place of one row's scores or weights of a tile for tokens that the row does not see.
QUIRE_INLINE void HideInvisible(const PairRows& rows, int row, float invisible, Vec (&s)[kUnitsPerTile]) {
  Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) {
    s[u] = Select(VisibleLanes(u, rows.begin[row], rows.end[row]), Set(invisible), s[u]);
  });
}

QUIRE_INLINE void LoadScores(int row, const float* scores, Vec (&s)[kUnitsPerTile]) {
  const float* from = scores + row * kAttentionTileTokens;
  Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) { s[u] = Load(from + u * kUnitTokens); });
}

// Caps one row's scores of a tile, also where they are stored.
QUIRE_INLINE void CapScores(int row, float softcap, float* scores, Vec (&s)[kUnitsPerTile]) {
  float* to = scores + row * kAttentionTileTokens;
  Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) {
    s[u] = Softcap(s[u], softcap);
    Store(to + u * kUnitTokens, s[u]);
  });
}

QUIRE_INLINE void ScaleValues(const PairRows& rows, int row, float factor, int padded_dim) {
  float* values = rows.values + int64_t{row} * padded_dim;
  for (int d = 0; d < padded_dim; d += kLanes) Store(values + d, Mul(Load(values + d), Set(factor)));
}

// Turns the scores of a tile into weights and updates the rows' states and values for their new maxima.
inline void SoftmaxRows(const PairRows& rows, int padded_dim, NextTile* next, PairScratch* scratch) {
  Vec lanes[kRowsPerTile], s[kUnitsPerTile];
  for (int row = 0; row < kRowsPerTile; ++row) {
    lanes[row] = Set(kMinusInfinity);
    if (row >= rows.count) continue;
    next->FetchStep();
    LoadScores(row, scratch->scores, s);
    if (rows.softcap > 0) CapScores(row, rows.softcap, scratch->scores, s);
    if (!SeesAll(rows, row)) HideInvisible(rows, row, kMinusInfinity, s);
    lanes[row] = Max(Max(s[0], s[1]), Max(s[2], s[3]));
  }
  const Vec tile_max = JoinLanes(
      lanes, [](Vec a, Vec b) __attribute__((always_inline)) { return Max(a, b); });

  alignas(64) float old_max[kRowsPerTile] = {}, old_sum[kRowsPerTile] = {};
  for (int row = 0; row < rows.count; ++row) {
    old_max[row] = rows.states[row].max;
    old_sum[row] = rows.states[row].sum;
  }
  const Vec max = Max(Load(old_max), tile_max);
  const Vec factor = Exp(Sub(Load(old_max), max));
  constexpr float kLog2E = 1.44269504f;
  alignas(64) float maxima[kRowsPerTile], offsets[kRowsPerTile], factors[kRowsPerTile];
  Store(maxima, max);
  Store(offsets, Mul(max, Set(-kLog2E)));
  Store(factors, factor);

  for (int row = 0; row < kRowsPerTile; ++row) {
    lanes[row] = Zero();
    if (row >= rows.count) continue;
    BFloat16* weights = scratch->weights + row * kAttentionTileTokens;
    if (rows.begin[row] >= rows.end[row]) {  // The row may have seen no token before, either, and -inf - -inf is NaN.
      _mm512_store_si512(weights, _mm512_setzero_si512());
      _mm512_store_si512(weights + 2 * kUnitTokens, _mm512_setzero_si512());
      continue;
    }
    next->FetchStep();
    LoadScores(row, scratch->scores, s);
    const Vec offset = Set(offsets[row]);
    Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) { s[u] = Exp2(Fma(s[u], Set(kLog2E), offset)); });
    if (!SeesAll(rows, row)) HideInvisible(rows, row, 0, s);
    lanes[row] = Add(Add(s[0], s[1]), Add(s[2], s[3]));
    _mm512_store_si512(weights, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(s[1].v, s[0].v)));
    _mm512_store_si512(weights + 2 * kUnitTokens, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(s[3].v, s[2].v)));
  }
  alignas(64) float sums[kRowsPerTile];
  const Vec tile_sum = JoinLanes(
      lanes, [](Vec a, Vec b) __attribute__((always_inline)) { return Add(a, b); });
  Store(sums, Fma(Load(old_sum), factor, tile_sum));
  for (int row = 0; row < rows.count; ++row) {
    if (rows.begin[row] >= rows.end[row]) continue;
    if (factors[row] != 1) ScaleValues(rows, row, factors[row], padded_dim);
    rows.states[row] = {maxima[row], sums[row]};
  }
}

// --- Values ---

// Copies V of a unit, with zeros for the tokens outside [begin, end). Returns whether the copied tokens are finite.
inline bool CopyVisible(const BFloat16* v, int begin, int end, int padded_dim, BFloat16* copy) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  bool is_finite = true;
  for (int pair = 0; pair < kUnitTokens / 2; ++pair) {
    const uint32_t even = 2 * pair >= begin && 2 * pair < end ? 0xffffu : 0;
    const uint32_t odd = 2 * pair + 1 >= begin && 2 * pair + 1 < end ? 0xffff0000u : 0;
    const __m512i visible = _mm512_set1_epi32(int(even | odd));
    for (int i = 0; i < 2 * padded_dim; i += 2 * kLanes) {
      const int at = pair * 2 * padded_dim + i;
      const __m512i values = _mm512_and_si512(_mm512_loadu_si512(v + at), visible);
      is_finite = is_finite && _mm512_cmpeq_epi16_mask(_mm512_and_si512(values, exponent), exponent) == 0;
      _mm512_storeu_si512(copy + at, values);
    }
  }
  return is_finite;
}

// Adds weights * V for the rows [first, first + count). A row must not use the V of a token that it does not see if V
// is infinite or NaN there, because weight 0 would not suppress it. Therefore tokens that no row sees are replaced by
// zeros. If rows see different tokens and some of V is not finite, each row is computed separately.
template <typename Products>
void AddValues(const PairRows& rows, int first, int count, const PairUnits& tile, Products* products,
               PairScratch* scratch) {
  int begin = kAttentionTileTokens, end = 0, all_begin = 0, all_end = kAttentionTileTokens;
  for (int row = first; row < first + count; ++row) {
    const bool sees_none = rows.begin[row] >= rows.end[row];
    all_begin = Max(all_begin, sees_none ? kAttentionTileTokens : rows.begin[row]);
    all_end = Min(all_end, sees_none ? 0 : rows.end[row]);
    if (sees_none) continue;
    begin = Min(begin, rows.begin[row]);
    end = Max(end, rows.end[row]);
  }
  if (begin >= end) return;
  PairUnits used = tile;
  used.begin = begin / kUnitTokens;
  used.end = (end + kUnitTokens - 1) / kUnitTokens;
  for (int u = used.begin; u < used.end; ++u) {
    const int first_token = u * kUnitTokens;
    if (all_begin <= first_token && all_end >= first_token + kUnitTokens) continue;
    const bool is_finite =
        CopyVisible(tile.v[u], begin - first_token, end - first_token, tile.padded_dim, scratch->v[u]);
    used.v[u] = scratch->v[u];
    if (is_finite || (all_begin <= begin && all_end >= end)) continue;
    for (int row = first; row < first + count; ++row) AddValues(rows, row, 1, tile, products, scratch);
    return;
  }
  products->Configure(count);
  products->AddValues(scratch->weights + first * kAttentionTileTokens, count, used,
                      rows.values + int64_t{first} * tile.padded_dim);
}

// --- Tiles ---

// Attends rows [row, row + count) of the task to the tile that starts at unit `first_unit`. `queries` starts at `row`.
template <typename Products>
void AttendPairTile(const AttentionTask& task, int row, int count, const BFloat16* queries, int first_unit,
                    Products* products, PairScratch* scratch) {
  const int num_units = Min(kUnitsPerTile, task.num_units - first_unit);
  const int first_token = task.first_token + first_unit * kUnitTokens;
  PairRows rows;
  rows.queries = queries;
  rows.states = task.states + row;
  rows.values = task.values + int64_t{row} * task.padded_dim;
  rows.count = count;
  rows.softcap = task.softcap;
  int begin = kAttentionTileTokens, end = 0;
  bool all_see_all = true;
  for (int r = 0; r < count; ++r) {
    rows.begin[r] = Max(0, task.visible_begin[row + r] - first_token);
    rows.end[r] = Min(num_units * kUnitTokens, task.visible_end[row + r] - first_token);
    all_see_all = all_see_all && rows.begin[r] == 0 && rows.end[r] == kAttentionTileTokens;
    if (rows.begin[r] >= rows.end[r]) continue;
    begin = Min(begin, rows.begin[r]);
    end = Max(end, rows.end[r]);
  }
  if (begin >= end) return;

  PairUnits tile;
  tile.begin = begin / kUnitTokens;
  tile.end = (end + kUnitTokens - 1) / kUnitTokens;
  tile.padded_dim = task.padded_dim;
  // The first rows prefetch the next tile for all rows.
  NextTile next;
  tile.next = &next;
  const bool fetches_next = row == 0 && first_unit + 2 * kUnitsPerTile <= task.num_units + task.num_following;
  if (fetches_next) next = NextTile(task.units + first_unit + kUnitsPerTile, task.padded_dim);
  for (int u = tile.begin; u < tile.end; ++u) {
    tile.k[u] = static_cast<const BFloat16*>(task.units[first_unit + u]);
    tile.v[u] = tile.k[u] + kUnitTokens * task.padded_dim;
  }
  products->Configure(count);
  products->Score(queries, count, tile, scratch->scores);
  SoftmaxRows(rows, task.padded_dim, &next, scratch);
  if (all_see_all) {
    products->AddValues(scratch->weights, count, tile, rows.values);
  } else {
    AddValues(rows, 0, count, tile, products, scratch);
  }
  next.FetchRest();
}

QUIRE_INLINE void RoundQuery(const float* query, const AttentionTask& task, BFloat16* rounded) {
  for (int d = 0; d < task.padded_dim; d += kLanes) {
    const int lanes = Max(0, Min(kLanes, task.head_dim - d));
    Store(rounded + d, Mul(LoadFirst(query + d, lanes), Set(task.scale)));
  }
}

// Every tile is applied to up to kMaxAttentionRows rows while it is in the cache.
template <typename Products>
void AttendPairs(const AttentionTask& task) {
  alignas(64) BFloat16 queries[kMaxAttentionRows * kMaxHeadDim];
  PairScratch scratch;
  Products products;
  for (int first = 0; first < task.num_rows; first += kMaxAttentionRows) {
    const int end = Min(task.num_rows, first + kMaxAttentionRows);
    for (int row = first; row < end; ++row) {
      RoundQuery(task.queries[row], task, queries + int64_t{row - first} * task.padded_dim);
    }
    for (int unit = 0; unit < task.num_units; unit += kUnitsPerTile) {
      for (int row = first; row < end; row += kRowsPerTile) {
        AttendPairTile(task, row, Min(kRowsPerTile, end - row), queries + int64_t{row - first} * task.padded_dim, unit,
                       &products, &scratch);
      }
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_PAIRS_H_
