// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_TILE_ORDER_H_
#define QUIRE_KERNELS_CPU_LINEAR_TILE_ORDER_H_

#include <cstdint>

#include "kernels/cpu/linear/weight_panels.h"
#include "kernels/half_float.h"
#include "kernels/types.h"

namespace quire::cpu {

// The division of k for products in tiles: into slices (MatrixView::num_slices), and these into blocks. All blocks have
// `block` units, except that the last one of each slice may have less. A unit is some consecutive k.
struct KBlocks {
  int slice;  // Units of a slice.
  int block;  // Units of a block.
  int blocks_per_slice;
  int size;  // Number of blocks.

  // Makes blocks of up to `most` units.
  [[gnu::always_inline]] constexpr KBlocks(int num_units, int num_slices, int most)
      : slice(num_units / num_slices),
        block(0),
        blocks_per_slice((slice + most - 1) / most),
        size(num_slices * blocks_per_slice) {
    block = (slice + blocks_per_slice - 1) / blocks_per_slice;
  }

  [[gnu::always_inline]] constexpr int SliceOf(int i) const { return i / blocks_per_slice; }
  // Units of the slice before block i, and of all slices.
  [[gnu::always_inline]] constexpr int FirstInSlice(int i) const { return i % blocks_per_slice * block; }
  [[gnu::always_inline]] constexpr int First(int i) const { return SliceOf(i) * slice + FirstInSlice(i); }
  [[gnu::always_inline]] constexpr int Count(int i) const {
    const int rest = slice - FirstInSlice(i);
    return rest < block ? rest : block;
  }
  // Returns the block that has this unit.
  [[gnu::always_inline]] constexpr int BlockOf(int unit) const {
    return unit / slice * blocks_per_slice + unit % slice / block;
  }
  [[gnu::always_inline]] constexpr bool BeginsSlice(int i) const { return i % blocks_per_slice == 0; }
  [[gnu::always_inline]] constexpr bool EndsSlice(int i) const { return (i + 1) % blocks_per_slice == 0; }
};

// An InputLayout other than kRows consists of tiles of 16 rows by 32 k, each 1 KiB of consecutive memory:
//   [block of k][pair of tiles][k / 32 in the block][2][16][32]
// Columns are padded with zeros to whole tiles. Rows are padded to whole pairs of tiles, and what is in these rows has
// no meaning. No block is in two slices, so each number of slices has its own order.
constexpr int kTilePairRows = 32;
constexpr int kTileStep = kBFloat16PanelStep;  // The k of a tile.
constexpr int kTilePairElements = kTilePairRows * kTileStep;
// A block of a panel, which is multiplied by all rows, stays in the first-level cache.
constexpr int kMaxBlockSteps = 16;
// Returns the blocks in steps of 32 k.
[[gnu::always_inline]] constexpr KBlocks StepBlocks(int cols, int num_slices) {
  return {(cols + kTileStep - 1) / kTileStep, num_slices, kMaxBlockSteps};
}
// The order of tiles for a matrix of this many slices (MatrixView::num_slices), and the inverse.
constexpr InputLayout TilesOf(int num_slices) {
  return InputLayout(num_slices);
}
constexpr int SlicesOf(InputLayout layout) {
  return layout == InputLayout::kRows ? 1 : int(layout);
}
// Where the elements of a matrix in tiles are.
struct TileOrder {
  int num_pairs;
  int num_steps;   // A step has 32 columns.
  KBlocks blocks;  // Blocks of these steps.

  constexpr TileOrder(int num_rows, int cols, int num_slices)
      : num_pairs((num_rows + kTilePairRows - 1) / kTilePairRows),
        num_steps((cols + kTileStep - 1) / kTileStep),
        blocks(StepBlocks(cols, num_slices)) {}

  constexpr int64_t num_elements() const { return int64_t{num_pairs} * num_steps * kTilePairElements; }
  // Returns the number of elements before the part of a pair that is in a block.
  constexpr int64_t PartStart(int pair, int block) const {
    return kTilePairElements * (int64_t{num_pairs} * blocks.First(block) + int64_t{pair} * blocks.Count(block));
  }
};

// The same for panels of int4, whose blocks are groups: the most columns of a block, and the bytes that it becomes.
constexpr int kMaxInt4BlockColumns = 512;
constexpr int kInt4BlockBytes = kMaxInt4BlockColumns * kPanelColumns;
// Returns the blocks in groups.
[[gnu::always_inline]] constexpr KBlocks GroupBlocks(int num_groups, int group, int num_slices) {
  return {num_groups, num_slices, kMaxInt4BlockColumns / group};
}

// The input of products by panels of int4 (bfloat16) with tiles is in pairs of k, as the right-hand tiles are. Up to
// kTilePairRows rows are [cols / 2][num_rows][2]. More rows are in tiles of 16 pairs of k by 16 rows:
//   [block of k][pair of tiles][k / 32 in the block][2][16][16][2]
// Columns are padded with zeros to a multiple of 32, and rows to whole pairs of tiles with what has no meaning. A block
// is whole groups, of at most kMaxPairBlockColumns columns.
constexpr int kMaxPairBlockColumns = 512;
// Elements of LinearTask::scratch for a block of a panel as bfloat16, and for a part of the next one.
constexpr int kPairScratchElements = 3 * kMaxPairBlockColumns / 2 * kPanelColumns;
// Where the tiles of more rows are.
struct PairOrder {
  int num_pairs;        // Pairs of tiles.
  int num_steps;        // A step has 32 columns.
  int steps_per_group;  // The same of a group.
  KBlocks blocks;       // Blocks of groups.

  [[gnu::always_inline]] constexpr PairOrder(int num_rows, int cols, int group, int num_slices)
      : num_pairs((num_rows + kTilePairRows - 1) / kTilePairRows),
        num_steps((cols + kTileStep - 1) / kTileStep),
        steps_per_group(group / kTileStep),
        blocks((cols + group - 1) / group, num_slices, kMaxPairBlockColumns / group) {}

  [[gnu::always_inline]] constexpr int64_t num_elements() const {
    return int64_t{num_pairs} * num_steps * kTilePairElements;
  }
  [[gnu::always_inline]] constexpr int FirstStep(int block) const { return blocks.First(block) * steps_per_group; }
  // Returns the steps of a block. They do not include steps of the last group without columns.
  [[gnu::always_inline]] constexpr int NumSteps(int block) const {
    const int whole = blocks.Count(block) * steps_per_group, rest = num_steps - FirstStep(block);
    return whole < rest ? whole : rest;
  }
  // Returns the number of elements before the part of a pair of tiles that is in a block.
  [[gnu::always_inline]] constexpr int64_t PartStart(int pair, int block) const {
    return kTilePairElements * (int64_t{num_pairs} * FirstStep(block) + int64_t{pair} * NumSteps(block));
  }
};

// Rows of x to store in pairs of k: element k of row r is element k % 2 of pair k / 2, which is 2 r elements after the
// place of the pair.
struct PairRowsTask {
  const BFloat16* x;  // [num_rows, x_stride]
  int64_t x_stride;
  int num_rows;         // At most 16.
  int cols;             // Zeros follow, up to a multiple of 32.
  BFloat16* y;          // The place of the first pair.
  int64_t y_stride;     // Distance between pairs of the same 32 columns.
  int64_t step_stride;  // Distance from the first pair of 32 columns to the first one of the next 32.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_LINEAR_TILE_ORDER_H_
