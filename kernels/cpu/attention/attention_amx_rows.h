// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_ROWS_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_ROWS_H_

#include <immintrin.h>

#include "kernels/cpu/attention/attention_pairs.h"
#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/isa/amx_tile.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/softmax_state.h"

// The rows of an AmxAttention (attention_amx.h), in blocks of 16.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kKeyDepth = 32;                            // Dimensions of a product of tiles.
constexpr int kKeyTileElements = kTileRows * kKeyDepth;  // Elements of a tile of queries or keys.
constexpr float kMaxGrowth = 5.545f;                     // 8 ln 2

// Tokens that some or all of several rows see: [begin, end) and [all_begin, all_end), as positions.
struct VisibleTokens {
  int begin = 0x7fffffff, end = 0, all_begin = 0, all_end = 0x7fffffff;

  void Add(int row_begin, int row_end) {
    if (row_begin >= row_end) {
      all_begin = 0x7fffffff;
      return;
    }
    begin = Min(begin, row_begin);
    end = Max(end, row_end);
    all_begin = Max(all_begin, row_begin);
    all_end = Min(all_end, row_end);
  }
  void Add(const VisibleTokens& other) {
    begin = Min(begin, other.begin);
    end = Max(end, other.end);
    all_begin = Max(all_begin, other.all_begin);
    all_end = Min(all_end, other.all_end);
  }

  bool SomeSee(int from, int to) const { return begin < to && end > from; }
  bool AllSee(int from, int to) const { return all_begin <= from && all_end >= to; }
  // Returns whether all rows see the same of these tokens.
  bool AllAlike(int from, int to) const {
    return Max(all_begin, from) <= Max(begin, from) && Min(all_end, to) >= Min(end, to);
  }
};

// It has up to 16 rows.
struct alignas(64) RowBlock {
  float max[kRowsPerTile];    // Weights are exp(score - max).
  float limit[kRowsPerTile];  // A larger score replaces the maximum. It is kMaxGrowth above the maximum.
  float sums[kRowsPerTile];   // The weights have these sums.
  const BFloat16* queries;    // [padded_dim / 32, rounded up][16][32]
  float* values;              // [rows of the tiles, padded_dim]
  int first_row;              // Counted from the first row of the task.
  int count;
  VisibleTokens visible;
};

// Up to kMaxAttentionRows rows of a task, with their queries in A tiles.
class AmxRows {
 public:
  AmxRows(const AttentionTask& task, int first_row, int num_rows);
  AmxRows(const AmxRows&) = delete;
  AmxRows& operator=(const AmxRows&) = delete;

  // Returns the results of all rows to the task.
  void StoreAll();

  int num_blocks() const { return num_blocks_; }
  RowBlock& block(int b) { return blocks_[b]; }
  const RowBlock& block(int b) const { return blocks_[b]; }
  // Number of rows of each tile. The last block may have fewer; then its tiles have zeros below.
  int rows_of_tiles() const { return rows_of_tiles_; }
  bool has_short_block() const { return blocks_[num_blocks_ - 1].count < rows_of_tiles_; }
  const VisibleTokens& visible() const { return visible_; }  // Some row sees each of these tokens.

 private:
  void LoadBlock(RowBlock* block, BFloat16* queries);
  void FillUp(RowBlock* block, BFloat16* queries);

  const AttentionTask& task_;
  const int depth_;  // Tiles of kKeyDepth dimensions.
  const int num_blocks_;
  const int rows_of_tiles_;
  VisibleTokens visible_;
  RowBlock blocks_[kMaxAttentionRows / kRowsPerTile];
  alignas(64) float last_values_[kRowsPerTile * kMaxHeadDim];  // A short block has its values here.
};

// Rounds a query to bfloat16 and stores it in A tiles, with zeros up to a whole tile.
QUIRE_INLINE void RoundQueryToTiles(const float* query, const AttentionTask& task, int depth, BFloat16* to) {
  const Vec scale = Set(task.scale);
  for (int i = 0; i < depth; ++i) {
    const int d = i * 2 * kLanes;
    const Vec low = LoadFirst(query + d, Max(0, Min(kLanes, task.head_dim - d)));
    const Vec high = LoadFirst(query + d + kLanes, Max(0, Min(kLanes, task.head_dim - d - kLanes)));
    _mm512_store_si512(to + i * kKeyTileElements,
                       reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(Mul(high, scale).v, Mul(low, scale).v)));
  }
}

inline AmxRows::AmxRows(const AttentionTask& task, int first_row, int num_rows)
    : task_(task),
      depth_((task.padded_dim + kKeyDepth - 1) / kKeyDepth),
      num_blocks_((num_rows + kRowsPerTile - 1) / kRowsPerTile),
      rows_of_tiles_(Min(num_rows, kRowsPerTile)) {
  for (int b = 0; b < num_blocks_; ++b) {
    RowBlock* block = &blocks_[b];
    BFloat16* queries = task.rounded_queries + (first_row / kRowsPerTile + b) * depth_ * kKeyTileElements;
    block->first_row = first_row + b * kRowsPerTile;
    block->count = Min(kRowsPerTile, num_rows - b * kRowsPerTile);
    LoadBlock(block, queries);
    visible_.Add(block->visible);
    if (block->count < rows_of_tiles_) FillUp(block, queries);
  }
}

inline void AmxRows::LoadBlock(RowBlock* block, BFloat16* queries) {
  block->queries = queries;
  block->values = task_.values + int64_t{block->first_row} * task_.padded_dim;
  block->visible = {};
  for (int r = 0; r < block->count; ++r) {
    const int row = block->first_row + r;
    if (!task_.queries_are_rounded) {
      RoundQueryToTiles(task_.queries[row], task_, depth_, queries + r * kKeyDepth);
    }
    block->max[r] = task_.states[row].max;
    block->limit[r] = block->max[r] + kMaxGrowth;
    block->sums[r] = task_.states[row].sum;
    block->visible.Add(task_.visible_begin[row], task_.visible_end[row]);
  }
}

// Extends a short block to the rows of the tiles.
inline void AmxRows::FillUp(RowBlock* block, BFloat16* queries) {
  for (int r = block->count; r < kRowsPerTile; ++r) {
    for (int d = 0; d < depth_; ++d) {
      _mm512_store_si512(queries + d * kKeyTileElements + r * kKeyDepth, _mm512_setzero_si512());
    }
  }
  const int num_values = block->count * task_.padded_dim;
  for (int i = 0; i < kRowsPerTile * task_.padded_dim; i += kLanes) {
    Store(last_values_ + i, i < num_values ? Load(block->values + i) : Zero());
  }
  block->values = last_values_;
}

inline void AmxRows::StoreAll() {
  for (int b = 0; b < num_blocks_; ++b) {
    const RowBlock& block = blocks_[b];
    for (int r = 0; r < block.count; ++r) task_.states[block.first_row + r] = {block.max[r], block.sums[r]};
    if (block.count == rows_of_tiles_) continue;
    float* const values = task_.values + int64_t{block.first_row} * task_.padded_dim;
    for (int i = 0; i < block.count * task_.padded_dim; i += kLanes) {
      Store(values + i, Load(last_values_ + i));
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_ROWS_H_
