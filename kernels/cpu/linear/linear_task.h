// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_TASK_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_TASK_H_

#include <cstdint>

#include "kernels/cpu/linear/tile_order.h"
#include "kernels/cpu/linear/weight_panels.h"
#include "kernels/half_float.h"
#include "kernels/linear.h"
#include "kernels/types.h"

namespace quire {
enum class BlockType : uint8_t;
}  // namespace quire

namespace quire::cpu {

// The slices that are finished are added in the order of a binary counter. If slice s has just been summed, there is
// one earlier sum for each bit 1 of s, and bit i is the sum of 2^i slices. The sum of slice s is added to the sums of
// its lowest bits, up to the first 0, lowest bit first. If these are n bits, the result is the sum of bit n, or the
// whole sum after the last slice. Slice 3, for example, is added to slice 2, and that sum to the one of the slices 0
// and 1.
[[gnu::always_inline]] constexpr int NumEarlierSums(int slice) {
  int n = 0;
  for (; (slice >> n & 1) != 0; ++n) {
  }
  return n;
}
constexpr int kMaxEarlierSums = 3;
static_assert(NumEarlierSums(kMaxSlices - 1) == kMaxEarlierSums);
// The sums that products in tiles keep for each slice that is being summed: the earlier ones and its own.
constexpr int NumKeptSums(int num_slices) {
  return NumEarlierSums(num_slices - 1) + 1;
}
// Number of k in a tile of x.
constexpr int kMaxInt4TileStep = 64;
constexpr int Int4TileStep(int group) {
  return group < kMaxInt4TileStep ? group : kMaxInt4TileStep;
}

// Inputs of products by int8 panels are rounded to whole numbers q in [-127, 127]. A row of them begins with this
// header, and its numbers begin after kQuantizedHeaderBytes bytes in a form that depends on the instruction set.
struct QuantizedHeader {
  float scale;         // x is about q * scale. NaN if the row of x has an infinity or a NaN; then every q is 0.
  int32_t offset_sum;  // kInt8Offset times the sum of all q.
};
constexpr int kQuantizedHeaderBytes = 64;

// Inputs of products by kInt4 panels are rounded in the same way, with a scale for each group of columns. The row
// begins with the headers of the groups. Then come the numbers of all groups, a byte each, with zeros up to the end of
// the last group. With LinearInput::is_tiled the numbers are in tiles of 16 rows by Int4TileStep k:
//   [block of k][pair of tiles][k / step in the block][2][16][step]
// and the scales are [pair of tiles][group][32]. Rows are padded to whole pairs of tiles.
struct GroupHeader {
  float scale;  // As above.
  float sum;    // All q in the group have this sum.
};

// A row of x to round by groups.
struct QuantizeGroupsTask {
  const float* x;  // [cols]
  int cols;
  int group;
  GroupHeader* headers;  // [ceil(cols / group)]
  int8_t* values;        // [ceil(cols / group), group]
};

// A row of x to round for a product by blocks. block_panels.h has the form of the result.
struct QuantizeBlocksTask {
  const float* x;  // [cols]
  int cols;
  BlockType type;
  void* row;
};

// In a panel of a gated matrix the first 16 columns belong to the gate and the other 16 to the same columns of up.
constexpr int kGatedColumns = kPanelColumns / 2;

// A tile of rows fetches this into the cache while it multiplies a panel. If several tiles multiply each panel, the
// first one would wait for memory, and memory would be idle during the others. So each of them fetches an equal part of
// the next panel.
struct PanelFetch {
  const void* panel;  // The next panel. Null if there is none, or if one tile multiplies all rows.
  int part;           // The tile's part, which is also the number of tiles before it.
  int num_parts;
};

// The rows of x, [num_rows, stride] in the type that KernelTable::linear_input gives. For kInt8 they are bytes of
// quantize_row, for kInt4 bytes of quantize_groups, and for blocks bytes of quantize_blocks.
struct LinearInput {
  // If is_tiled, the first tile: of the whole product for kBFloat16 and kInt4Units, and of the task for kInt4.
  const void* data;
  // In elements, which are bytes in rounded rows. If x is in pairs of k, the distance from one pair to the next.
  int64_t stride;
  int header_bytes;     // Header of a row, for kInt4.
  bool is_tiled;        // Whether x is in tiles, which StepBlocks, GroupBlocks or PairOrder divides.
  int num_tile_pairs;   // In the whole product, if is_tiled.
  const float* scales;  // Of tiles, for kInt4.
};

struct LinearWeights {
  const void* panels;      // The first panel of the task.
  const void* next;        // The first panel of this thread's probable next task, or null. It may be prefetched.
  PanelFetch fetch;        // Filled and used by linear_kernel.h.
  int64_t panel_elements;  // Distance from one panel to the next, in bytes in panels of int8, int4, fp8 and blocks.
  int group;               // Columns that share a scale, in panels of int4 and fp8.
  bool is_gated;           // Whether the panels belong to a gated matrix.
};

// What happens to the sums: y = cap(scale * (sum + bias)) + residual, or activation(gate + bias) * (up + bias).
struct LinearOutput {
  void* data;      // [num_rows, stride], starting at the task's first column.
  int64_t stride;  // In elements.
  DataType type;   // float32, or bfloat16 for a gated matrix.
  // Whether y is in tiles, and `data` the first of the whole product. REQUIRES: LinearInput::is_tiled and
  // LinearWeights::is_gated; the columns fill tiles.
  bool is_tiled;
  int slices;             // SlicesOf the layout of y, if is_tiled.
  int num_columns;        // Columns in all panels of the task, without the padding at the end.
  const float* bias;      // [num_columns], starting at the task's first panel; or null.
  const float* up_bias;   // Bias of up, when `bias` is the bias of a gate.
  const float* residual;  // Same shape as y, or null; may be y. It is null for a gated matrix.
  float scale;            // As in LinearArgs.
  float softcap;
  Activation activation;  // For a gated matrix.
};

// Multiplies rows of x by some panels. Every sum adds its products in one fixed order of ascending k in each slice, and
// then the slices as linear.h says, whatever the number of rows.
struct LinearTask {
  LinearInput x;
  LinearWeights w;
  LinearOutput y;
  int num_rows;
  int cols;
  int num_slices;  // Slices of k; see MatrixView.
  int num_panels;
  int first_row;  // The task begins here in the whole product. Used for what is in tiles.
  int first_column;
  // Memory of this thread, aligned to 64 bytes. For int4 and fp8: LinearScratchBytes; for blocks:
  // BlockScratchBytes. For x in tiles: memory for the
  // sums of all panels and pairs of tiles, NumKeptSums times, after two blocks of kInt4BlockBytes for kInt4 or
  // after kPairScratchElements for kInt4Units.
  void* scratch;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_TASK_H_
