// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_MANY_ROWS_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_MANY_ROWS_H_

#include "kernels/cpu/isa/amx_tile.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_amx_deferred_rows.h"
#include "kernels/cpu/linear/linear_amx_fetch.h"
#include "kernels/cpu/linear/linear_amx_many_rows.h"
#include "kernels/cpu/linear/linear_amx_quantized_tiles.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/linear/linear_task.h"

// Multiplication of many rounded rows, which are stored in tiles, by int4 weights. K is divided into blocks
// (GroupBlocks), as in linear_amx_many_rows.h. A block of a panel is converted to bytes once. It stays in the
// first-level cache while all rows are multiplied by it. Between two blocks, and until they are added to the products
// of other slices, the products are kept in the task's scratch, like the sums there.
//
// Tiles and vectors work at the same time. So each step of a pass has a part of the vector work: it converts the next
// block, combines the sums of the group before with its scales, and stores rows of an earlier pass.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

class TiledInt4Product {
 public:
  explicit TiledInt4Product(const LinearTask& task)
      : task_(task),
        format_(task),
        num_groups_((task.cols + task.w.group - 1) / task.w.group),
        blocks_(GroupBlocks(num_groups_, task.w.group, task.num_slices)),
        num_blocks_(blocks_.size * task.num_panels),
        num_pairs_((task.num_rows + kTilePairRows - 1) / kTilePairRows),
        tile_bytes_(kTileRows * format_.columns()),
        step_bytes_(kPanelColumns * format_.columns()),
        products_(reinterpret_cast<float*>(static_cast<char*>(task.scratch) + 2 * kInt4BlockBytes)),
        kept_stride_(int64_t{task.num_panels} * num_pairs_ * kPairSums) {}

  void Run() {
    TileShapes shapes;
    for (const int tile : {kSum00, kSum01, kSum10, kSum11}) shapes.Set(tile, kTileRows, kTileRowBytes);
    for (const int tile : {kX0, kX1}) shapes.Set(tile, kTileRows, format_.columns());
    for (const int tile : {kW0, kW1}) shapes.Set(tile, format_.columns() / 4, kTileRowBytes);
    ConfigureTiles(shapes);
    Convert(0, NumSteps(0));
    for (int i = 0; i < num_blocks_; ++i) MultiplyBlock(i);
    CombineRows(kTilePairRows);
    StoreRowsOfPass(kTilePairRows);
    ReleaseTiles();
  }

 private:
  static constexpr int kFetchDistance = 2;  // In blocks. The next block is being converted.

  // Blocks are in the order of their use: a block of all panels, then the next block of all panels.
  int Panel(int i) const { return i % task_.num_panels; }
  int FirstGroup(int i) const { return blocks_.First(i / task_.num_panels); }
  int NumGroups(int i) const { return blocks_.Count(i / task_.num_panels); }
  int NumSteps(int i) const { return NumGroups(i) * format_.steps_per_group(); }
  const char* PanelAt(int index) const {
    return static_cast<const char*>(task_.w.panels) + index * task_.w.panel_elements;
  }
  const char* WeightsOf(int i) const {
    return PanelAt(Panel(i)) + int64_t{FirstGroup(i)} * Int4GroupBytes(task_.w.group);
  }
  // The same for a block that may be one of the task that probably follows; null if it is unknown.
  const char* LaterWeights(int i) const {
    if (i < num_blocks_) return WeightsOf(i);
    if (task_.w.next == nullptr || i - num_blocks_ >= task_.num_panels) return nullptr;
    return static_cast<const char*>(task_.w.next) + (i - num_blocks_) * task_.w.panel_elements;
  }
  char* ConvertedBlock(int i) const { return static_cast<char*>(task_.scratch) + i % 2 * kInt4BlockBytes; }

  // The sums of a group, whose rows wait to be combined with scales.
  struct WaitingSums {
    const int32_t* sums;    // [32, 32]
    const float* x_scales;  // [32]
    const char* panel;
    int group;
    float* products;       // [32, 32]
    bool is_first;         // Whether the group is the first of its slice.
    int num_earlier;       // If it is the last of its slice: how many earlier sums are added. Otherwise 0.
    const float* earlier;  // The first of them.
    bool is_last;          // Whether the products are then complete.
    int first;             // The row of y of the first of the 32.
  };

  // Converts the next `count` steps of block `i`.
  QUIRE_INLINE void Convert(int i, int count) {
    const int first_step = FirstGroup(i) * format_.steps_per_group();
    for (; count > 0; --count, ++converted_steps_) {
      format_.Convert(PanelAt(Panel(i)), first_step + converted_steps_,
                      ConvertedBlock(i) + converted_steps_ * step_bytes_);
    }
  }

  // All passes over a block have these values in common.
  struct Block {
    int index;  // Index of the panel.
    int first_group, num_groups, num_steps;
    int next_steps;   // Steps of the next block.
    int num_earlier;  // Earlier sums of its slice.
    bool begins_slice, ends_slice, is_last;
  };
  Block BlockAt(int i) const {
    const int k = i / task_.num_panels;
    return {.index = Panel(i),
            .first_group = FirstGroup(i),
            .num_groups = NumGroups(i),
            .num_steps = NumSteps(i),
            .next_steps = i + 1 < num_blocks_ ? NumSteps(i + 1) : 0,
            .num_earlier = NumEarlierSums(blocks_.SliceOf(k)),
            .begins_slice = blocks_.BeginsSlice(k),
            .ends_slice = blocks_.EndsSlice(k),
            .is_last = k == blocks_.size - 1};
  }

  void MultiplyBlock(int i) {
    const Block block = BlockAt(i);
    converted_steps_ = 0;
    const int last_pass = num_pairs_ - 1;
    const int lines = (NumGroups(i) * Int4GroupBytes(task_.w.group) + kLineBytes - 1) / kLineBytes;
    fetcher_.Begin(LaterWeights(i + kFetchDistance), lines, num_pairs_ * NumSteps(i));
    for (int pair = 0; pair < num_pairs_; ++pair) {
      if (pair == last_pass && task_.num_rows - pair * kTilePairRows <= kTileRows) {
        Pass<1>(i, block, pair);
      } else {
        Pass<2>(i, block, pair);
      }
    }
    if (i + 1 < num_blocks_) Convert(i + 1, NumSteps(i + 1) - converted_steps_);
  }

  // Multiplies a pair of tiles of rows by block `i`.
  template <int kTiles>
  void Pass(int i, const Block& block, int pair) {
    const int num_groups = block.num_groups, num_steps = block.num_steps, first_group = block.first_group;
    const int columns = format_.columns(), index = block.index;
    const int row = pair * kTilePairRows, end = Min(row + kTilePairRows, task_.num_rows);
    const char* x = static_cast<const char*>(task_.x.data) +
                    int64_t{first_group} * task_.w.group * num_pairs_ * kTilePairRows +
                    int64_t{pair} * num_steps * 2 * tile_bytes_;
    const char* w = ConvertedBlock(i);
    const bool is_last = block.is_last;
    const int next_steps = block.next_steps;
    const int steps_per_group = format_.steps_per_group();
    const int combined_per_step = kTilePairRows / steps_per_group;
    const int stored_per_step = (kTilePairRows + num_steps - 1) / num_steps;
    float* const earlier = products_ + (int64_t{index} * num_pairs_ + pair) * kPairSums;
    float* const products = earlier + block.num_earlier * kept_stride_;
    for (int group = 0, step = 0; group < num_groups; ++group) {
      ZeroSums<kTiles>();
      for (const int group_end = step + steps_per_group; step < group_end; ++step) {
        LoadTile<kW0>(w, kWeightStride);
        StreamTile<kX0>(x, columns);
        LoadTile<kW1>(w + kTileRowBytes, kWeightStride);
        if constexpr (kTiles == 2) StreamTile<kX1>(x + tile_bytes_, columns);
        MultiplySigned<kSum00, kX0, kW0>();
        MultiplySigned<kSum01, kX0, kW1>();
        if constexpr (kTiles == 2) {
          MultiplySigned<kSum10, kX1, kW0>();
          MultiplySigned<kSum11, kX1, kW1>();
        }
        w += step_bytes_;
        x += 2 * tile_bytes_;
        fetcher_.Fetch();
        if (is_last) {
          const int first = row + step * stored_per_step;
          FetchOutput(task_, index, first, Min(first + stored_per_step, end));
        }
        // All passes together convert the next block.
        if ((pair * num_steps + step + 1) * next_steps > converted_steps_ * num_pairs_ * num_steps) Convert(i + 1, 1);
        StoreRowsOfPass(stored_per_step);
        CombineRows(combined_per_step);
      }
      CombineRows(kTilePairRows);
      int32_t* const sums = sums_[parity_];
      parity_ = 1 - parity_;
      StoreSums<kTiles>(reinterpret_cast<float*>(sums));
      waiting_ = {.sums = sums,
                  .x_scales = task_.x.scales + (int64_t{pair} * num_groups_ + first_group + group) * kTilePairRows,
                  .panel = PanelAt(index),
                  .group = first_group + group,
                  .products = products,
                  .is_first = block.begins_slice && group == 0,
                  .num_earlier = block.ends_slice && group + 1 == num_groups ? block.num_earlier : 0,
                  .earlier = earlier,
                  .is_last = is_last && group + 1 == num_groups,
                  .first = row};
      to_combine_.Replace(index, 0, end - row);
    }
  }

  // Combines up to `count` more rows of the waiting sums.
  QUIRE_INLINE void CombineRows(int count) {
    to_combine_.Take(
        count, [&](int row, int end) __attribute__((always_inline)) {
          if (waiting_.num_earlier > 0) {
            waiting_.is_first ? CombineUntil<true, true>(row, end) : CombineUntil<false, true>(row, end);
          } else {
            waiting_.is_first ? CombineUntil<true, false>(row, end) : CombineUntil<false, false>(row, end);
          }
          if (!to_combine_.is_empty() || !waiting_.is_last) return;
          StoreRowsOfPass(kTilePairRows);
          products_to_store_ = waiting_.products;
          first_to_store_ = waiting_.first;
          to_store_.Replace(to_combine_.index(), 0, end);
        });
  }
  template <bool kIsFirst, bool kHasEarlier>
  QUIRE_INLINE void CombineUntil(int begin, int end) {
    const Vec left_scales = format_.Scales(waiting_.panel, waiting_.group, 0);
    const Vec right_scales = format_.Scales(waiting_.panel, waiting_.group, 1);
    const int32_t* sums = waiting_.sums + begin * kPanelColumns;
    float* products = waiting_.products + begin * kPanelColumns;
    const float* const x_scales = waiting_.x_scales;
    const float* earlier = waiting_.earlier + begin * kPanelColumns;
    const int num_earlier = kHasEarlier ? waiting_.num_earlier : 0;
    for (int row = begin; row < end;
         ++row, sums += kPanelColumns, products += kPanelColumns, earlier += kPanelColumns) {
      const Vec scale = Set(x_scales[row]);
      const Vec left = {_mm512_cvtepi32_ps(_mm512_load_si512(sums))};
      const Vec right = {_mm512_cvtepi32_ps(_mm512_load_si512(sums + kLanes))};
      const Vec left_before = kIsFirst ? Zero() : Load(products);
      const Vec right_before = kIsFirst ? Zero() : Load(products + kLanes);
      const Vec left_sum = Add(left_before, Mul(left, Mul(scale, left_scales)));
      const Vec right_sum = Add(right_before, Mul(right, Mul(scale, right_scales)));
      Store(products, AddEarlier(left_sum, num_earlier, earlier, kept_stride_));
      Store(products + kLanes, AddEarlier(right_sum, num_earlier, earlier + kLanes, kept_stride_));
    }
  }

  // Stores up to `count` more rows of the last pass whose products are complete.
  QUIRE_INLINE void StoreRowsOfPass(int count) {
    to_store_.Take(
        count, [&](int row, int end) __attribute__((always_inline)) {
          StoreRows(task_, first_to_store_ + row, first_to_store_ + end, to_store_.index(),
                    products_to_store_ + row * kPanelColumns);
        });
  }

  alignas(64) int32_t sums_[2][kPairSums];
  const LinearTask& task_;
  const Int4Tiles format_;
  const int num_groups_;
  const KBlocks blocks_;
  const int num_blocks_;  // Number of blocks of a panel.
  const int num_pairs_;
  const int tile_bytes_;       // Bytes of a tile of x.
  const int step_bytes_;       // Bytes of a step of converted weights.
  float* const products_;      // [earlier sum][panel][pair][32, 32]
  const int64_t kept_stride_;  // Distance between earlier sums.

  DeferredRows to_combine_, to_store_;  // Rows among the 32 of a pass.
  WaitingSums waiting_ = {};            // The sums to combine.
  const float* products_to_store_ = nullptr;
  int first_to_store_ = 0;   // The row of y of the first of them.
  int parity_ = 0;           // Which of sums_ is next.
  int converted_steps_ = 0;  // Of the next block.
  PartFetcher fetcher_;      // Of a later block.
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_MANY_ROWS_H_
