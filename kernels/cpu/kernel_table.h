// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_KERNEL_TABLE_H_
#define QUIRE_KERNELS_CPU_KERNEL_TABLE_H_

#include <cstdint>

#include "kernels/cpu/cpu_features.h"
#include "kernels/half_float.h"
#include "kernels/kv_layout.h"
#include "kernels/linear.h"
#include "kernels/softmax_state.h"
#include "kernels/types.h"

namespace quire::cpu {

// How weights are stored. The first three formats match DataType, in the same order. kInt4, kInt4Float32 and
// kInt4BFloat16 have the same panels, and differ in the input. The input of kInt4Units is bfloat16, too.
enum class WeightFormat : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt8,
  kInt4,
  kInt4Float32,
  kInt4BFloat16,
  kInt4Units,
  kFp8
};
constexpr int kNumWeightFormats = 9;

// Weights are packed in panels of 32 output columns (rows of the source matrix). The last panel is filled with zeros.
//   float32, float16: [panel][k][32]
//   bfloat16:         [panel][k / 2][32][2], so that one load reads two consecutive k of 16 columns. k is padded with
//                     zeros to a multiple of 32. 32 k of a panel are the two right-hand tiles of an AMX product.
//   int8:             [panel] with 32 scales in float32 and then [k / 4][32][4] bytes, each a weight + 128. One load
//                     reads four consecutive k of 16 columns. k is padded to a multiple of 64; 64 k of a panel are the
//                     two right-hand tiles of an AMX product of bytes.
//   int4:             [panel][k / group], each group with 32 scales in float32, 32 zero points of a byte each, 32
//                     unused bytes, and then [group / 8][32] words of 32 bits. A word holds eight consecutive k of a
//                     column: the first four in the low halves of its bytes, the others in the high halves. One load
//                     reads eight k of 16 columns. k is padded to a multiple of the group.
//   int4 in units:    The same, except for the words. A unit is 32 consecutive k of a column, and the units of a group
//                     are in the order [32 columns][group / 32]. Four units are a line of 32 words of 16 bits: word i
//                     has the weight i of each of them, the first unit in its lowest four bits. So a table of 16
//                     numbers of bfloat16 makes a unit in one look-up, as a row of the left-hand tile of a product.
//   fp8:              [panel][k / group], each group with 32 scales in float32 and then [group / 4][2][4][2][4][2]
//                     bytes of E4M3: of four consecutive k, two halves of 16 columns, and in each four times the
//                     first two k of four columns and then their last two k. One load reads four k of 16 columns. k is
//                     padded with zeros to a multiple of the group, which is a multiple of 32.
constexpr int kPanelColumns = 32;
constexpr int kBFloat16PanelStep = 32;  // In panels of bfloat16, k is padded to a multiple of this.
constexpr int kInt8PanelStep = 64;      // The same in panels of int8.
constexpr int kInt8QuadColumns = 4;     // The k of a load.
constexpr int kInt8ScaleBytes = kPanelColumns * int(sizeof(float));
constexpr int kInt8Offset = 128;  // A byte of a panel is greater than the weight by this.
// The header of a group has scales and zero points.
constexpr int kScalesBytes = kPanelColumns * int(sizeof(float));  // The scales of a group.
constexpr int kInt4HeaderBytes = kScalesBytes + 64;
constexpr int kInt4LineColumns = 8;   // The k of a word.
constexpr int kInt4UnitColumns = 32;  // The k of a unit.
constexpr int kInt4LineUnits = 4;
constexpr int kInt4LineBytes = 64;
constexpr int Int4GroupBytes(int group) {
  return kInt4HeaderBytes + group / 2 * kPanelColumns;
}
constexpr int kFp8HeaderBytes = kScalesBytes;
constexpr int kFp8LineColumns = 4;  // The k of a line.
constexpr int kFp8LineBytes = 64;
constexpr int kFp8Step = kBFloat16PanelStep;  // Groups, and the columns that kernels convert, are multiples of this.
constexpr int Fp8GroupBytes(int group) {
  return kFp8HeaderBytes + group * kPanelColumns;
}
// The same with the layout and the size of bfloat16.
constexpr int ConvertedGroupBytes(int group) {
  return kScalesBytes + group * kPanelColumns * 2;
}
// Bytes of LinearTask::scratch for panels of int4 and fp8: two panels of bfloat16, or a small one.
constexpr int64_t LinearScratchBytes(int num_groups, int group) {
  constexpr int64_t kLeast = 16 << 10;
  const int64_t panels = int64_t{2} * num_groups * ConvertedGroupBytes(group);
  return panels > kLeast ? panels : kLeast;
}

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

// InputLayout::kTiles consists of tiles of 16 rows by 32 k, each 1 KiB of consecutive memory:
//   [block of k][pair of tiles][k / 32 in the block][2][16][32]
// Columns are padded with zeros to whole tiles. Rows are padded to whole pairs of tiles, and what is in these rows has
// no meaning. kTilesOf2 and so on are the same with other blocks.
constexpr int kTilePairRows = 32;
constexpr int kTileStep = kBFloat16PanelStep;  // The k of a tile.
constexpr int kTilePairElements = kTilePairRows * kTileStep;
// A block of a panel, which is multiplied by all rows, stays in the first-level cache.
constexpr int kMaxBlockSteps = 16;
// Returns the blocks in steps of 32 k.
[[gnu::always_inline]] constexpr KBlocks StepBlocks(int cols, int num_slices) {
  return {(cols + kTileStep - 1) / kTileStep, num_slices, kMaxBlockSteps};
}
constexpr InputLayout TilesOf(int num_slices) {
  return num_slices == 8   ? InputLayout::kTilesOf8
         : num_slices == 4 ? InputLayout::kTilesOf4
         : num_slices == 2 ? InputLayout::kTilesOf2
                           : InputLayout::kTiles;
}
constexpr int SlicesOf(InputLayout layout) {
  return layout == InputLayout::kTilesOf8   ? 8
         : layout == InputLayout::kTilesOf4 ? 4
         : layout == InputLayout::kTilesOf2 ? 2
                                            : 1;
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
// the last group. With LinearTask::is_tiled the numbers are in tiles of 16 rows by Int4TileStep k:
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

// Multiplies rows of x by some panels. Every sum adds its products in one fixed order of ascending k in each slice, and
// then the slices as linear.h says, whatever the number of rows. The result is y = cap(scale * (sum + bias)) +
// residual, or activation(gate + bias) * (up + bias).
struct LinearTask {
  // [num_rows, x_stride] in the type that KernelTable::linear_input gives. For kInt8 it is bytes of quantize_row, and
  // for kInt4 bytes of quantize_groups. If is_tiled, it is the first tile: of the whole product for kBFloat16 and
  // kInt4Units, and of the task for kInt4.
  const void* x;
  bool is_tiled;          // Whether x is in tiles, which StepBlocks, GroupBlocks or PairOrder divides.
  const float* x_scales;  // Of x in tiles, for kInt4.
  // Tells whether y is the first tile of the whole product. REQUIRES: is_tiled and is_gated; the columns fill tiles.
  bool y_is_tiled;
  int y_slices;        // SlicesOf the layout of y, if y_is_tiled.
  int num_tile_pairs;  // In the whole product, if is_tiled.
  int first_row;       // The task begins here in the whole product. Used for what is in tiles.
  int first_column;
  const void* panels;       // The first panel of the task.
  const void* next_panels;  // The first panel of this thread's probable next task, or null. It may be prefetched.
  PanelFetch fetch;         // Filled and used by linear_kernel.h.
  bool is_gated;            // Whether the panels belong to a gated matrix.
  const float* bias;        // [num_columns], starting at the task's first panel; or null.
  const float* up_bias;     // Bias of up, when `bias` is the bias of a gate.
  const float* residual;    // Same shape as y, or null; may be y. It is null for a gated matrix.
  // Memory of this thread, aligned to 64 bytes. For int4 and fp8: LinearScratchBytes. For x in tiles: memory for the
  // sums of all panels and pairs of tiles, NumKeptSums times, after two blocks of kInt4BlockBytes for kInt4 or
  // after kPairScratchElements for kInt4Units.
  void* scratch;
  void* y;          // [num_rows, y_stride], starting at the task's first column.
  DataType y_type;  // float32, or bfloat16 for a gated matrix.
  // All strides are in elements, which are bytes in panels of int8, int4 and fp8 and in rounded x. That of x in pairs
  // is from one pair to the next.
  int64_t x_stride;
  int64_t y_stride;
  int64_t panel_elements;  // Distance from one panel to the next.
  int group;               // Columns that share a scale, in panels of int4 and fp8.
  int x_header_bytes;      // Header of a row of x, for kInt4.
  int num_rows;
  int cols;
  int num_slices;  // Slices of k; see MatrixView.
  int num_panels;
  int num_columns;  // Columns of y in all panels of the task, without the padding at the end.
  float scale;      // As in LinearArgs.
  float softcap;
  Activation activation;  // For a gated matrix.
};

// Attends rows of queries to consecutive 16-token units of one KV head and updates each row's running softmax. Tokens
// are processed in tiles of 64 absolute positions. Each row sees the tokens [visible_begin, visible_end). Its result
// does not depend on any other row.
struct AttentionTask {
  const void* const* units;     // [num_units + num_following], K of each in the layout of its type; V follows K, and
                                // scales follow V.
  const float* const* queries;  // [num_rows], each [head_dim]
  // For kernels that round queries to bfloat16: memory for [num_rows] of them, rounded up to a multiple of 16, each
  // [head_dim] rounded up to a multiple of 32. It is aligned to 64 bytes. A kernel fills it, unless an earlier task
  // with the same queries has done so.
  BFloat16* rounded_queries;
  bool queries_are_rounded;
  const int32_t* visible_begin;  // [num_rows] absolute positions
  const int32_t* visible_end;    // [num_rows]
  SoftmaxState* states;          // [num_rows], state of the tokens seen before; updated. May be empty states.
  float* values;                 // [num_rows, padded_dim], sum of exp(score - max) * v of the same tokens; updated.
  int num_units;
  int num_following;  // Number of further units that later tasks will probably read. They may be prefetched.
  int first_token;    // Position of the first token of units[0], a multiple of 64.
  int num_rows;
  int head_dim;
  int padded_dim;  // head_dim rounded up to a multiple of 16: columns of V in a unit. K is [head_dim][16] in padded_dim
                   // * 16 elements.
  float scale;
  float softcap;  // As in AttentionArgs.
};
constexpr int kAttentionTileTokens = 64;
constexpr int kAttentionTileUnits = kAttentionTileTokens / 16;
// Rows for which the kernels that multiply pairs read K and V only once. More rows are processed in several passes.
constexpr int kMaxAttentionRows = 128;

// Draws with the Gumbel-max trick. The result is the index i of the largest scores[i] + g(i), ties to the lowest index,
// where g(i) is the noise of token i. Scores are at most 0.
struct GumbelTask {
  const float* scores;    // [count]
  const int32_t* tokens;  // [count] ascending; null means that entry i is token i.
  int count;
  int best_score;  // Index of the largest score.
  uint64_t seed;
  uint32_t position;
};

struct RowExtremes {
  float max;
  int32_t argmax;  // Lowest index of the maximum; 0 when there is a NaN.
  bool is_finite;  // Whether there is neither an infinity nor a NaN.
};

// The operations that are compiled once per instruction set.
struct KernelTable {
  // The function for kInt4Units is null without takes_tiles, and the one for kInt4BFloat16 where kInt4Float32 is used
  // instead.
  void (*linear[kNumWeightFormats])(const LinearTask& task);
  // The type of x: float32, or bfloat16 where bfloat16 instructions multiply. With bfloat16, the rows of x are padded
  // with zeros from `cols` to the next multiple of 32. Rows for kInt8 and kInt4 are made from float32.
  DataType linear_input[kNumWeightFormats];
  // The most rows of x whose sums are in registers at a time, except in AMX tiles.
  int max_tile_rows;
  // Tells whether linear[kBFloat16] and linear[kInt4] also take tiles, and linear[kInt4Units] takes pairs of k.
  bool takes_tiles;
  // Stores rows in pairs of k. It is null without takes_tiles.
  void (*pair_rows)(const PairRowsTask& task);
  // Writes the header and the numbers of a row. `cols` is padded with zeros to a multiple of 64. All instruction sets
  // give the same header and the same numbers, in forms of quantized_bytes each.
  void (*quantize_row)(const float* x, int cols, void* row);
  int quantized_bytes;
  // All instruction sets give the same headers and numbers.
  void (*quantize_groups)(const QuantizeGroupsTask& task);
  // Indexed by KvType. Attention over int8 has the same bits on all instruction sets with fused multiply-add.
  void (*attend[kNumKvTypes])(const AttentionTask& task);
  // Whether attend[kBFloat16] multiplies pairs of bfloat16. Then its bits differ from attend[kFloat32] on the same
  // values.
  bool multiplies_pairs;

  // Rounds K or V of one token and head as kv_layout.h says. All instruction sets give the same numbers and scale.
  void (*quantize_head)(const float* x, int dim, int8_t* values, float* scale);

  // Joins the rows of `from`, which are over other tokens, to the same rows of `into`. A row that is empty in `from`
  // stays as it is. States are [num_rows] and values [num_rows, padded_dim].
  void (*merge_softmax)(int num_rows, SoftmaxState* into, float* into_values, const SoftmaxState* from,
                        const float* from_values, int padded_dim);
  // out[0, dim) = values / sum.
  void (*finish_softmax)(SoftmaxState state, const float* values, float* out, int dim);

  // Indexed by the type of y. `residual` may be null.
  void (*rms_norm[3])(const float* x, const float* weight, const float* residual, void* y, int dim, float epsilon);
  // Rotates x[i] and x[i + half] by the angle whose cosine and sine are cos[i] and sin[i].
  void (*rotate_half)(float* x, const float* cos, const float* sin, int half);
  // Stores to[0, n) in the given type, rounded to nearest even.
  void (*convert[3])(const float* from, void* to, int n);
  // The inverse of convert: reads n values of the given type and stores them as float32.
  void (*widen[3])(const void* from, float* to, int n);

  RowExtremes (*extremes)(const float* x, int n);
  // Writes the largest value of each chunk of 64; chunk_max has ceil(n / 64) entries.
  void (*chunk_max)(const float* x, int n, float* chunk_max);
  // Sum of exp(x - max). Blocks of 64 terms are summed in float and added up in double.
  double (*sum_exp)(const float* x, int n, float max);
  // w = exp(x).
  void (*exp)(const float* x, int n, float* w);
  // Writes the indices with x >= threshold in ascending order and returns their number. `indices` has room for n.
  int (*collect)(const float* x, int n, float threshold, int32_t* indices);
  // Returns 1 + the number of entries before x[index] in the order of falling value, equal values by index.
  int (*rank)(const float* x, int n, int index);
  // y = x - high - low, bounded below by the lowest finite number; y may be x.
  void (*subtract)(const float* x, int n, float high, float low, float* y);
  // y = (x - max) / temperature; y may be x.
  void (*scale_scores)(const float* x, int n, float max, float temperature, float* y);
  int (*gumbel_argmax)(const GumbelTask& task);
};

const KernelTable& GenericKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();
// Like Avx512Kernels(), except that products of rounded inputs use VPDPBUSD. The bits are the same.
const KernelTable& Avx512VnniKernels();
// Like Avx512VnniKernels(), except for products of bfloat16.
const KernelTable& Avx512Bf16Kernels();
const KernelTable& AmxKernels();

// REQUIRES: isa is one of SupportedIsas().
const KernelTable& KernelsFor(Isa isa);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_KERNEL_TABLE_H_
