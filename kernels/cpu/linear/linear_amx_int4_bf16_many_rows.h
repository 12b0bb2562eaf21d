// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_BF16_MANY_ROWS_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_BF16_MANY_ROWS_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/int4_bf16_weights.h"
#include "kernels/cpu/linear/linear_amx_deferred_rows.h"
#include "kernels/cpu/linear/linear_amx_fetch.h"
#include "kernels/cpu/linear/linear_amx_many_rows.h"
#include "kernels/cpu/linear/linear_amx_tiles.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/linear/linear_task.h"

// Multiplication of many rows of bfloat16 by int4 weights with AMX tiles. K is divided into blocks (PairOrder), as in
// linear_amx_many_rows.h, and sums are kept in the same way. A block of a panel is converted to bfloat16 once, while
// the first rows are multiplied by it. As in linear_amx_int4_bf16_kernel.h, columns are the rows of the sums.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Transposes 16 x 16 sums: from 16 columns of the product to rows of a panel, with kPanelColumns from one to the next.
QUIRE_INLINE void TransposeSums(const float* from, int from_stride, float* to) {
  __m512i rows[kTileRows];
  Unroll<kTileRows>([&]<int i>()
                        __attribute__((always_inline)) { rows[i] = _mm512_loadu_si512(from + i * from_stride); });
  Transpose(rows);
  Unroll<kTileRows>([&]<int i>()
                        __attribute__((always_inline)) { _mm512_storeu_si512(to + i * kPanelColumns, rows[i]); });
}

// The sums of the last pass that ended a slice and has earlier sums, or that was the last one of its rows. They are
// [32 columns][32 rows]. They are processed in parts between the products of the next pass, which the tile unit
// computes at the same time: the earlier sums are added to the sums of each column, and then the rows of each tile are
// transposed and stored. The parts are spread evenly over the pass, because stores wait for lines of y.
class PendingColumns {
 public:
  explicit PendingColumns(const LinearTask* task) : task_(*task) {}

  // Divides the work among `num_calls` calls of Work.
  void Begin(int num_calls) {
    num_calls_ = num_calls;
    num_parts_ = parts_.size();
    due_ = 0;
  }
  QUIRE_INLINE void Work() {
    for (due_ += num_parts_; due_ >= num_calls_; due_ -= num_calls_) {
      parts_.Take(
          1, [&](int part, int) __attribute__((always_inline)) { DoPart(part); });
    }
  }

  // Returns the place for the sums of this pass, which are the next to be processed. REQUIRES: all work is done.
  float* Replace(const Pass& pass) {
    const int num_rows = pass.end - pass.row;
    pass_ = pass;
    const int stores = !pass.is_last ? 0 : num_rows <= kTileRows ? 2 + num_rows : 4 + num_rows;
    parts_.Replace(pass.index, pass.num_earlier > 0 ? 0 : kTileParts, kTileParts + stores);
    return sums_;
  }

 private:
  static constexpr int kTileParts = kPanelColumns;    // The first part of a tile of rows.
  static constexpr int kPartsOfTile = 2 + kTileRows;  // Two transpose the halves of its columns.

  QUIRE_INLINE void DoPart(int part) {
    if (part < kTileParts) {
      const int at = part * kTilePairRows;
      float* const to = pass_.is_last ? sums_ : pass_.sums;
      AddEarlierRows(kTilePairRows, sums_ + at, pass_.num_earlier, pass_.earlier + at, pass_.earlier_stride, to + at);
      return;
    }
    const int tile = (part - kTileParts) / kPartsOfTile, rest = (part - kTileParts) % kPartsOfTile;
    if (rest < 2) {
      TransposeSums(sums_ + rest * kTileSums + tile * kTileRows, kTilePairRows,
                    rows_ + tile * kTileSums + rest * kTileRows);
    } else {
      const int row = tile * kTileRows + rest - 2;
      StoreRows(task_, pass_.row + row, pass_.row + row + 1, pass_.index, rows_ + row * kPanelColumns);
    }
  }

  const LinearTask& task_;
  Pass pass_ = {};
  DeferredRows parts_;  // Numbers of parts in place of rows.
  int num_calls_ = 1, num_parts_ = 0, due_ = 0;
  alignas(64) float sums_[kPairSums];
  alignas(64) float rows_[kPairSums];
};

// kUnits is the number of steps of a group.
//
// A block of a panel takes at most 32 KiB as bfloat16, and the first-level cache has no room for a second one. So the
// first pass over a block converts it, some groups ahead of its products. Only the first groups, the head, must be
// there when the pass begins. The last pass over the block before converts them to memory of their own.
template <int kUnits>
class ManyRowsInt4BFloat16 {
 public:
  explicit ManyRowsInt4BFloat16(const LinearTask& task)
      : task_(task),
        order_(task.x.num_tile_pairs * kTilePairRows, task.cols, task.w.group, task.num_slices),
        num_blocks_(order_.blocks.size * task.num_panels),
        num_pairs_((task.num_rows + kTilePairRows - 1) / kTilePairRows),
        sums_(reinterpret_cast<float*>(static_cast<BFloat16*>(task.scratch) + kPairScratchElements)),
        kept_stride_(int64_t{task.num_panels} * num_pairs_ * kPairSums),
        pending_(&task) {}

  void Run() {
    const LinearTiles tiles(kTileRows);
    for (head_line_ = 0; head_line_ < HeadLines(0);) ConvertHeadLine(0);
    for (int i = 0; i < num_blocks_; ++i) MultiplyBlock(i);
    pending_.Begin(1);
    pending_.Work();
  }

 private:
  static constexpr int kFetchDistance = 2;                     // In blocks. The head of the next block is converted.
  static constexpr int kHeadGroups = kInt4LineUnits / kUnits;  // So a head has four steps.
  static constexpr int kLines = Int4LinesOfGroup(kUnits);
  static constexpr int kLinesPerStep = kLines / kUnits;
  static constexpr int kGroupBytes = Int4GroupBytes(kUnits * kInt4UnitColumns);

  // Blocks are in the order of their use: a block of all panels, then the next block of all panels.
  int Panel(int i) const { return i % task_.num_panels; }
  int Block(int i) const { return i / task_.num_panels; }
  int NumGroups(int i) const { return order_.blocks.Count(Block(i)); }
  const uint8_t* WeightsOf(int i) const {
    return static_cast<const uint8_t*>(task_.w.panels) + Panel(i) * task_.w.panel_elements +
           int64_t{order_.blocks.First(Block(i))} * kGroupBytes;
  }
  // The same for a block that may be one of the task that probably follows; null if it is unknown.
  const uint8_t* LaterWeights(int i) const {
    if (i < num_blocks_) return WeightsOf(i);
    if (task_.w.next == nullptr || i - num_blocks_ >= task_.num_panels) return nullptr;
    return static_cast<const uint8_t*>(task_.w.next) + (i - num_blocks_) * task_.w.panel_elements;
  }

  // Returns the place of a group of block `i` as bfloat16. Four steps are a part, and the parts of a block alternate
  // between the two buffers of int4_bf16_weights.h. The heads of consecutive blocks have different places.
  QUIRE_INLINE BFloat16* Converted(int i, int group) const {
    constexpr int kPartElements = kInt4LineUnits * kConvertedStride;
    const int part = group / kHeadGroups;
    const int slot = part == 0 ? i % 2 : part == 1 ? 0 : part == 2 ? 2 : 1;
    return static_cast<BFloat16*>(task_.scratch) + slot * kPartElements + part % 2 * kConvertedElements +
           group % kHeadGroups * kUnits * kConvertedStride;
  }
  QUIRE_INLINE void Convert(int i, const uint8_t* weights, int group, int line) const {
    ConvertLine<kUnits>(weights + group * kGroupBytes, line, Converted(i, group));
  }
  int HeadLines(int i) const { return i < num_blocks_ ? Min(kHeadGroups, NumGroups(i)) * kLines : 0; }
  QUIRE_INLINE void ConvertHeadLine(int i) {
    Convert(i, WeightsOf(i), head_line_ / kLines, head_line_ % kLines);
    ++head_line_;
  }

  void MultiplyBlock(int i) {
    const int block = Block(i), num_steps = order_.NumSteps(block);
    const int num_earlier = NumEarlierSums(order_.blocks.SliceOf(block));
    const int later = i + kFetchDistance, groups = NumGroups(Min(later, num_blocks_ - 1));
    fetcher_.Begin(LaterWeights(later), (groups * kGroupBytes + kLineBytes - 1) / kLineBytes, num_pairs_ * num_steps);
    head_line_ = 0;
    Pass pass{};
    pass.x = static_cast<const BFloat16*>(task_.x.data) + order_.PartStart(task_.first_row / kTilePairRows, block);
    pass.earlier = sums_ + int64_t{Panel(i)} * num_pairs_ * kPairSums;
    pass.earlier_stride = kept_stride_;
    pass.sums = sums_ + int64_t{Panel(i)} * num_pairs_ * kPairSums + num_earlier * kept_stride_;
    pass.num_steps = num_steps;
    pass.is_first = order_.blocks.BeginsSlice(block);
    pass.is_last = block == order_.blocks.size - 1;
    pass.num_earlier = order_.blocks.EndsSlice(block) ? num_earlier : 0;
    pass.index = Panel(i);
    for (; pass.row < task_.num_rows; pass.row += kTilePairRows) {
      pass.end = Min(pass.row + kTilePairRows, task_.num_rows);
      if (pass.end - pass.row > kTileRows) {
        RunPass<2>(i, pass);
      } else {
        RunPass<1>(i, pass);
      }
      pass.x += num_steps * kTilePairElements;
      pass.sums += kPairSums;
      pass.earlier += kPairSums;
    }
  }

  // Multiplies kTiles tiles of rows.
  template <int kTiles>
  void RunPass(int i, const Pass& pass) {
    const int rows_per_step = (kTilePairRows + pass.num_steps - 1) / pass.num_steps;
    const int converted_groups = pass.row == 0 ? NumGroups(i) : 0;
    const int head_lines = pass.end == task_.num_rows ? HeadLines(i + 1) : 0;
    const int head_lines_per_step = (head_lines + pass.num_steps - 1) / pass.num_steps;
    const uint8_t* const weights = WeightsOf(i);
    const BFloat16* x = pass.x;
    pending_.Begin(pass.num_steps);
    pass.is_first ? ZeroSums<2>() : LoadSums<2>(pass.sums);
    for (int group = 0, step = 0; step < pass.num_steps; ++group) {
      const BFloat16* w = Converted(i, group);
      const int later = group + kHeadGroups;
      for (int unit = 0; unit < kUnits && step < pass.num_steps; ++unit, ++step) {
        pending_.Work();
        LoadTile<kX0>(w, kTileRowBytes);
        StreamTile<kW0>(x, kTileRowBytes);
        LoadTile<kX1>(w + kTileElements, kTileRowBytes);
        if constexpr (kTiles == 2) StreamTile<kW1>(x + kTileElements, kTileRowBytes);
        MultiplyTiles<kSum00, kX0, kW0>();
        MultiplyTiles<kSum10, kX1, kW0>();
        if constexpr (kTiles == 2) {
          MultiplyTiles<kSum01, kX0, kW1>();
          MultiplyTiles<kSum11, kX1, kW1>();
        }
        x += kTilePairElements;
        w += kConvertedStride;
        fetcher_.Fetch();
        if (pass.is_last) {
          const int row = pass.row + step * rows_per_step;
          FetchOutput(task_, pass.index, row, Min(row + rows_per_step, pass.end));
        }
        if (later < converted_groups) {
          for (int line = 0; line < kLinesPerStep; ++line) Convert(i, weights, later, unit * kLinesPerStep + line);
        }
        for (int n = head_lines_per_step; n > 0 && head_line_ < head_lines; --n) ConvertHeadLine(i + 1);
      }
    }
    StoreSums<2>(pass.is_last || pass.num_earlier > 0 ? pending_.Replace(pass) : pass.sums);
  }

  const LinearTask& task_;
  const PairOrder order_;
  const int num_blocks_;  // Number of blocks of a panel.
  const int num_pairs_;   // Number of pairs of tiles of the task.
  float* const sums_;     // [earlier sum][panel][pair][32 columns][32 rows]
  const int64_t kept_stride_;
  PendingColumns pending_;

  int head_line_ = 0;    // Line of the next block that is converted next.
  PartFetcher fetcher_;  // Of a later block.
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_BF16_MANY_ROWS_H_
