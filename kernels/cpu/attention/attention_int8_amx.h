// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_INT8_AMX_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_INT8_AMX_H_

#include <immintrin.h>

#include "kernels/cpu/attention/attention_int8.h"
#include "kernels/cpu/attention/attention_pairs.h"
#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/isa/amx_tile.h"
#include "kernels/cpu/isa/simd.h"

// The formula of attention_int8.h with AMX tiles, which multiply bytes by bytes and add the products in int32. A word
// is 256 * (its signed upper byte) + (its unsigned lower byte), so each product of words is two products of tiles. All
// sums are exact, and the softmax is the code of attention_int8.h. Therefore the bits are the same.
//
// A B tile holds four consecutive dimensions of K, or tokens of V, for each column, and a unit holds two. So K and V of
// a tile of 64 tokens are copied once for all rows of the task.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Attends up to kMaxAttentionRows rows of a task.
class AmxInt8Attention {
 public:
  AmxInt8Attention(const AttentionTask& task, int first_row, int num_rows);
  ~AmxInt8Attention() { ReleaseTiles(); }
  AmxInt8Attention(const AmxInt8Attention&) = delete;
  AmxInt8Attention& operator=(const AmxInt8Attention&) = delete;

  void Run();

 private:
  static constexpr int kDepth = kTileRowBytes;  // Dimensions or tokens of a product of tiles.
  static constexpr int kTileBytes = kTileRows * kDepth;
  static constexpr int kMaxDepths = kMaxHeadDim / kDepth;
  // Tile registers: sums of products with upper and lower bytes for two columns of B tiles.
  static constexpr int kUpperSums = 0, kLowerSums = 2, kUpperA = 4, kLowerA = 5, kB = 6;
  static_assert(kDepth == kAttentionTileTokens && kRowsPerTile == kLanes);

  // The bytes of a matrix of words.
  template <int kTiles>
  struct alignas(64) SplitWords {
    int8_t upper[kTiles * kTileBytes];
    uint8_t lower[kTiles * kTileBytes];
  };

  static void Split(const __m512i (&words)[4], int8_t* upper, uint8_t* lower);
  void PackTile(int unit);
  template <int kTiles>
  void Multiply(const SplitWords<kTiles>& words, int first_tile, int depths, const int8_t* b, int b_stride,
                int num_columns, int sums_stride);
  void AttendBlock(int unit, int block);
  void Score(int block, const TileUnits& tile);
  void Softmax(int first_row, int count, const TileUnits& tile, const int* begin, const int* end);
  void AddValues(int first_row, int count);
  Vec Sum(int at) const;

  const AttentionTask& task_;
  const int first_row_;
  const int num_rows_;
  const int dim_;
  const int depths_;  // Tiles of 64 dimensions.

  SplitWords<kMaxAttentionRows / kRowsPerTile * kMaxDepths> queries_;
  float query_scales_[kMaxAttentionRows];
  alignas(64) int8_t k_[kUnitsPerTile][kMaxDepths * kTileBytes];  // [padded_dim / 64, rounded up][16][16][4]
  alignas(64) int8_t v_[kMaxHeadDim / kLanes * kTileBytes];       // [padded_dim / 16][16][16][4]
  alignas(64) float scores_[kRowsPerTile * kAttentionTileTokens];
  alignas(64) float factors_[kRowsPerTile];  // Factors for the values that the rows have summed so far.
  alignas(64) float scales_[kRowsPerTile];   // Factors for the tile's sums of weights * v.
  SplitWords<1> weights_;
  alignas(64) int32_t upper_sums_[kRowsPerTile * kMaxHeadDim];
  alignas(64) int32_t lower_sums_[kRowsPerTile * kMaxHeadDim];
};

// Splits 64 words, which are whole numbers in 32 bits.
QUIRE_INLINE void AmxInt8Attention::Split(const __m512i (&words)[4], int8_t* upper, uint8_t* lower) {
  const auto join = [](__m256i low, __m256i high) __attribute__((always_inline)) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  };
  const __m512i first = join(_mm512_cvtepi32_epi16(words[0]), _mm512_cvtepi32_epi16(words[1]));
  const __m512i second = join(_mm512_cvtepi32_epi16(words[2]), _mm512_cvtepi32_epi16(words[3]));
  _mm512_store_si512(upper, join(_mm512_cvtepi16_epi8(_mm512_srai_epi16(first, 8)),
                                 _mm512_cvtepi16_epi8(_mm512_srai_epi16(second, 8))));
  _mm512_store_si512(lower, join(_mm512_cvtepi16_epi8(first), _mm512_cvtepi16_epi8(second)));
}

inline AmxInt8Attention::AmxInt8Attention(const AttentionTask& task, int first_row, int num_rows)
    : task_(task),
      first_row_(first_row),
      num_rows_(num_rows),
      dim_(task.padded_dim),
      depths_((task.padded_dim + kDepth - 1) / kDepth) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.Set(tile, kTileRows, kTileRowBytes);
  ConfigureTiles(shapes);
  for (int i = 0; i < (num_rows + kRowsPerTile - 1) / kRowsPerTile * kRowsPerTile; ++i) {
    alignas(64) int16_t words[kMaxHeadDim] = {};
    if (i < num_rows) RoundQuery(task.queries[first_row + i], task, words, &query_scales_[i]);
    for (int d = 0; d < depths_; ++d) {
      __m512i wide[4];
      for (int part = 0; part < 4; ++part) {
        const auto* from = reinterpret_cast<const __m256i*>(words + d * kDepth + part * kLanes);
        wide[part] = _mm512_cvtepi16_epi32(_mm256_load_si256(from));
      }
      const int at = (i / kRowsPerTile * depths_ + d) * kTileBytes + i % kRowsPerTile * kDepth;
      Split(wide, queries_.upper + at, queries_.lower + at);
    }
  }
}

// Copies K and V of a tile in the order of B tiles. K ends with zeros up to a whole tile.
inline void AmxInt8Attention::PackTile(int unit) {
  // Two rows of pairs become one of quads.
  alignas(64) int16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = int16_t(i / 2 + i % 2 * 16);
  const __m512i quads = _mm512_load_si512(order);
  for (int u = 0; u < kUnitsPerTile; ++u) {
    const bool has_unit = unit + u < task_.num_units;
    const int8_t* k = static_cast<const int8_t*>(task_.units[has_unit ? unit + u : unit]);
    for (int row = 0; row < depths_ * kTileRows; ++row) {
      const bool has_row = 4 * row < dim_;
      _mm512_store_si512(k_[u] + row * kTileRowBytes,
                         has_row ? _mm512_permutexvar_epi16(quads, _mm512_loadu_si512(k + row * kTileRowBytes))
                                 : _mm512_setzero_si512());
    }
    const int8_t* v = k + kUnitTokens * dim_;
    for (int row = 0; row < kUnitTokens / 4; ++row) {
      for (int column = 0; column < dim_; column += kLanes) {
        const int8_t* from = v + (2 * row * dim_ + column) * 2;
        const __m512i pairs =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))),
                               _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * dim_)), 1);
        _mm512_store_si512(v_ + column / kLanes * kTileBytes + (u * kUnitTokens / 4 + row) * kTileRowBytes,
                           has_unit ? _mm512_permutexvar_epi16(quads, pairs) : _mm512_setzero_si512());
      }
    }
  }
}

// Computes the sums of 16 rows of words times B tiles for `num_columns` columns of tiles, which are `b_stride` bytes
// apart and consist of `depths` tiles each.
template <int kTiles>
QUIRE_INLINE void AmxInt8Attention::Multiply(const SplitWords<kTiles>& words, int first_tile, int depths,
                                             const int8_t* b, int b_stride, int num_columns, int sums_stride) {
  const auto multiply = [&]<int kColumns>(int column) __attribute__((always_inline)) {
    Unroll<kColumns>([]<int i>() __attribute__((always_inline)) {
      ZeroTile<kUpperSums + i>();
      ZeroTile<kLowerSums + i>();
    });
    for (int d = 0; d < depths; ++d) {
      LoadTile<kUpperA>(words.upper + (first_tile + d) * kTileBytes, kTileRowBytes);
      LoadTile<kLowerA>(words.lower + (first_tile + d) * kTileBytes, kTileRowBytes);
      Unroll<kColumns>([&]<int i>() __attribute__((always_inline)) {
        LoadTile<kB + i>(b + int64_t{column + i} * b_stride + d * kTileBytes, kTileRowBytes);
        MultiplySigned<kUpperSums + i, kUpperA, kB + i>();
        MultiplyUnsignedBySigned<kLowerSums + i, kLowerA, kB + i>();
      });
    }
    Unroll<kColumns>([&]<int i>() __attribute__((always_inline)) {
      const int at = (column + i) * kLanes;
      StoreTile<kUpperSums + i>(upper_sums_ + at, sums_stride * int64_t{sizeof(int32_t)});
      StoreTile<kLowerSums + i>(lower_sums_ + at, sums_stride * int64_t{sizeof(int32_t)});
    });
  };
  int column = 0;
  for (; column + 2 <= num_columns; column += 2) multiply.template operator()<2>(column);
  if (column < num_columns) multiply.template operator()<1>(column);
}

// Returns 16 sums of products of words.
QUIRE_INLINE Vec AmxInt8Attention::Sum(int at) const {
  const __m512i upper = _mm512_load_si512(upper_sums_ + at), lower = _mm512_load_si512(lower_sums_ + at);
  return {_mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower))};
}

// Computes the scores of a block of 16 rows.
inline void AmxInt8Attention::Score(int block, const TileUnits& tile) {
  Multiply(queries_, block * depths_, depths_, k_[0], sizeof(k_[0]), tile.count, kAttentionTileTokens);
  for (int u = 0; u < tile.count; ++u) {
    const Vec k_scale = Load(KeyScales(tile.units[u], dim_));
    for (int r = 0; r < Min(kRowsPerTile, num_rows_ - block * kRowsPerTile); ++r) {
      const Vec scale = Mul(Set(query_scales_[block * kRowsPerTile + r]), k_scale);
      const int at = r * kAttentionTileTokens + u * kUnitTokens;
      Store(scores_ + at, Mul(Sum(at), scale));
    }
  }
}

// Adds the weights times V to the values of a block, whose first row is `first_row` of the task.
inline void AmxInt8Attention::AddValues(int first_row, int count) {
  Multiply(weights_, 0, 1, v_, kTileBytes, dim_ / kLanes, dim_);
  for (int r = 0; r < count; ++r) {
    const Vec factor = Set(factors_[r]), scale = Set(scales_[r]);
    float* values = task_.values + int64_t{first_row + r} * dim_;
    for (int d = 0; d < dim_; d += kLanes) {
      Store(values + d, Fma(Sum(r * dim_ + d), scale, Mul(Load(values + d), factor)));
    }
  }
}

// Turns the scores of a block into bytes of weights and updates the rows' maxima and sums. Computes for each row what
// SoftmaxToWords() computes. A row that sees no token of the tile has begin == end and stays as it is.
inline void AmxInt8Attention::Softmax(int first_row, int count, const TileUnits& tile, const int* begin,
                                      const int* end) {
  Vec lanes[kRowsPerTile];
  alignas(64) float old_max[kRowsPerTile] = {}, old_sum[kRowsPerTile] = {}, sums[kRowsPerTile] = {};
  for (int r = 0; r < kRowsPerTile; ++r) {
    lanes[r] = Set(kMinusInfinity);
    if (r >= count) continue;
    old_max[r] = task_.states[first_row + r].max;
    old_sum[r] = task_.states[first_row + r].sum;
    float* const scores = scores_ + r * kAttentionTileTokens;
    const bool sees_all = begin[r] == 0 && end[r] == tile.count * kUnitTokens;
    for (int u = 0; u < tile.count; ++u) {
      Vec score = Load(scores + u * kUnitTokens);
      if (task_.softcap > 0) score = Softcap(score, task_.softcap);
      if (!sees_all) score = Select(VisibleLanes(u, begin[r], end[r]), Set(kMinusInfinity), score);
      if (task_.softcap > 0 || !sees_all) Store(scores + u * kUnitTokens, score);
      lanes[r] = Max(lanes[r], score);
    }
  }
  const auto larger = [](Vec a, Vec b) __attribute__((always_inline)) {
    return Max(a, b);
  };
  const Vec max = Max(Load(old_max), JoinLanes(lanes, larger));
  const Vec factor = Exp(Sub(Load(old_max), max));
  alignas(64) float maxima[kRowsPerTile], inverses[kRowsPerTile];
  Store(maxima, max);

  for (int r = 0; r < kRowsPerTile; ++r) {
    lanes[r] = Zero();
    if (r >= count || begin[r] >= end[r]) continue;
    float* const scores = scores_ + r * kAttentionTileTokens;
    const bool sees_all = begin[r] == 0 && end[r] == tile.count * kUnitTokens;
    Vec sum = Zero();
    for (int u = 0; u < tile.count; ++u) {
      const Vec weight = Exp(Sub(Load(scores + u * kUnitTokens), Set(maxima[r])));
      Vec scaled = Mul(weight, Load(ValueScales(tile.units[u], dim_)));
      if (!sees_all) scaled = Select(VisibleLanes(u, begin[r], end[r]), Zero(), scaled);
      sum = Add(sum, Fma(scaled, Zero(), weight));  // Becomes NaN with a NaN among the scales.
      scaled = Max(scaled, Zero());                 // 0 instead of NaN.
      lanes[r] = Max(lanes[r], scaled);
      Store(scores + u * kUnitTokens, scaled);
    }
    sums[r] = ReduceAdd(sum);
  }
  const Vec heaviest = JoinLanes(lanes, larger);
  const uint32_t is_not_zero = GreaterEqual(heaviest, Set(kSmallestMagnitude));
  Store(inverses, Select(is_not_zero, Zero(), Div(Set(kMaxWord), heaviest)));
  Store(scales_, Select(is_not_zero, Zero(), Div(heaviest, Set(kMaxWord))));
  Store(factors_, factor);
  Store(sums, Add(Mul(Load(old_sum), factor), Load(sums)));

  for (int r = 0; r < kRowsPerTile; ++r) {
    __m512i words[kUnitsPerTile] = {};
    if (r < count && begin[r] < end[r]) {
      for (int u = 0; u < tile.count; ++u) {
        const Vec scaled = Load(scores_ + r * kAttentionTileTokens + u * kUnitTokens);
        words[u] = _mm512_cvtps_epi32(Round(Mul(scaled, Set(inverses[r]))).v);
      }
      task_.states[first_row + r] = {maxima[r], sums[r]};
    } else {
      factors_[r] = 1;
    }
    Split(words, weights_.upper + r * kDepth, weights_.lower + r * kDepth);
  }
}

// Attends 16 rows to the tile that starts at unit `unit`, if some of them see a token of it.
inline void AmxInt8Attention::AttendBlock(int unit, int block) {
  const TileUnits tile = {task_.units + unit, Min(kUnitsPerTile, task_.num_units - unit), 0};
  const int first_token = task_.first_token + unit * kUnitTokens;
  const int first_row = first_row_ + block * kRowsPerTile;
  const int count = Min(kRowsPerTile, num_rows_ - block * kRowsPerTile);
  int begin[kRowsPerTile], end[kRowsPerTile];
  bool sees_any = false;
  for (int r = 0; r < count; ++r) {
    begin[r] = Max(0, task_.visible_begin[first_row + r] - first_token);
    end[r] = Min(tile.count * kUnitTokens, task_.visible_end[first_row + r] - first_token);
    sees_any = sees_any || begin[r] < end[r];
  }
  if (!sees_any) return;
  Score(block, tile);
  Softmax(first_row, count, tile, begin, end);
  AddValues(first_row, count);
}

inline void AmxInt8Attention::Run() {
  for (int unit = 0; unit < task_.num_units; unit += kUnitsPerTile) {
    PackTile(unit);
    for (int block = 0; block * kRowsPerTile < num_rows_; ++block) AttendBlock(unit, block);
  }
}

// With fewer rows, copying K and V would cost more than it saves.
constexpr int kMinTileRows = 16;

// REQUIRES: at least kMinTileRows rows.
inline void AttendInt8Tiles(const AttentionTask& task) {
  for (int first = 0; first < task.num_rows; first += kMaxAttentionRows) {
    AmxInt8Attention(task, first, Min(kMaxAttentionRows, task.num_rows - first)).Run();
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_INT8_AMX_H_
