// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_BLOCK_PANELS_H_
#define QUIRE_KERNELS_CPU_LINEAR_BLOCK_PANELS_H_

#include <cstdint>

#include "kernels/blocks.h"
#include "kernels/cpu/linear/linear_task.h"
#include "kernels/cpu/linear/weight_panels.h"

// The layout of panels of blocks, and of the inputs that are multiplied by them.
//
// A panel is [k / unit], where a unit holds a block (kernels/blocks.h) of each of 32 columns:
//   [32] scales in float16, in kMXFP4 in bfloat16, and in types with minima [32] minima
//   in types with several groups [groups / 2][32][2] bytes of small scales, and the same of small minima: those of two
//   groups are side by side, so that they can be multiplied as pairs
//   the lines of the groups, alternately for the first and the last 16 columns
// A line has the numbers of consecutive k of 16 columns. Four of them are a quad; NumberOffset is added to each, so
// that it is not negative, unless the type has codes.
//   kQ8_0  A quad: [16][4] bytes.
//   kQ4_K  Two quads: [16] words of 32 bits, the first four k in the low halves of the bytes, the others in the high
//          halves.
//   kIQ4_NL and kMXFP4  The same with codes. NumberOffset is added to the numbers that a table has for them.
//   kQ5_K  A group: the low bits as four lines of kQ4_K, and [16] words with the fifth bits. Bit j of a byte belongs to
//          the quad j.
//   kQ6_K  A group: the low bits as two lines of kQ4_K, and [16] words with the upper bits. The bits 2 j and 2 j + 1 of
//          a byte belong to the quad j.
namespace quire::cpu {

constexpr int kQuadBytes = 64;  // 16 words of 32 bits.

constexpr BlockType BlockTypeOf(WeightFormat format) {
  return BlockType(int(format) - int(WeightFormat::kQ8_0));
}
constexpr WeightFormat FormatOf(BlockType type) {
  return WeightFormat(int(WeightFormat::kQ8_0) + int(type));
}

// What is added to a number.
constexpr int NumberOffset(BlockType type) {
  switch (type) {
    case BlockType::kQ8_0:
      return 128;
    case BlockType::kQ6_K:
      return 32;
    case BlockType::kIQ4_NL:
      return 127;
    case BlockType::kMXFP4:
      return 12;
    case BlockType::kQ4_K:
    case BlockType::kQ5_K:
      break;
  }
  return 0;
}
// The bits of a number or a code in a panel.
constexpr int NumberBits(BlockType type) {
  return type == BlockType::kQ8_0 ? 8 : type == BlockType::kQ6_K ? 6 : type == BlockType::kQ5_K ? 5 : 4;
}
// The largest number, with the offset.
constexpr int LargestNumber(BlockType type) {
  const int8_t* const numbers = CodedNumbers(type);
  if (numbers == nullptr) return (1 << NumberBits(type)) - 1;
  int largest = numbers[0];
  for (int code = 1; code < 16; ++code) largest = numbers[code] > largest ? numbers[code] : largest;
  return largest + NumberOffset(type);
}

// Offsets are in bytes from the begin of a unit.
struct BlockPanel {
  int unit;          // The k of a unit.
  int group;         // The k of a group.
  int line_columns;  // The k of a line.
  int line_bytes;
  bool has_minima;

  constexpr int num_groups() const { return unit / group; }
  constexpr int minima() const { return kPanelColumns * 2; }
  constexpr int small_scales() const { return (has_minima ? 2 : 1) * minima(); }
  constexpr int small_minima() const { return small_scales() + num_groups() * kPanelColumns; }
  constexpr int header_bytes() const {
    const int small_bytes = num_groups() == 1 ? 0 : num_groups() * kPanelColumns;
    return small_scales() + (has_minima ? 2 : 1) * small_bytes;
  }
  constexpr int group_bytes() const { return group / line_columns * 2 * line_bytes; }
  constexpr int unit_bytes() const { return header_bytes() + num_groups() * group_bytes(); }
};
constexpr BlockPanel BlockPanelOf(BlockType type) {
  const BlockShape shape = ShapeOf(type);
  switch (type) {
    case BlockType::kQ8_0:
      break;
    case BlockType::kQ4_K:
    case BlockType::kIQ4_NL:
    case BlockType::kMXFP4:
      return {shape.columns, shape.group, 8, kQuadBytes, shape.has_minima};
    case BlockType::kQ5_K:
      return {shape.columns, shape.group, 32, 5 * kQuadBytes, shape.has_minima};
    case BlockType::kQ6_K:
      return {shape.columns, shape.group, 16, 3 * kQuadBytes, shape.has_minima};
  }
  return {shape.columns, shape.group, 4, kQuadBytes, shape.has_minima};
}

// The form of a row of x, whose units are rounded to whole numbers q in [-127, 127]: a scale in float32 for each unit,
// then sums of the q of each group, then the q of all columns. The sums are int16; if a unit is one group, they are
// int32 and multiplied by -NumberOffset. Offsets are in bytes. A row takes whole cache lines.
struct BlockInput {
  int sums_at;
  int values_at;
  int row_bytes;
};
constexpr BlockInput BlockInputOf(BlockType type, int cols) {
  const BlockPanel panel = BlockPanelOf(type);
  const auto whole_lines = [](int bytes) { return (bytes + 63) / 64 * 64; };
  const int sums_at = cols / panel.unit * 4, sum_bytes = panel.num_groups() == 1 ? 4 : 2;
  const int values_at = whole_lines(sums_at + cols / panel.group * sum_bytes);
  return {sums_at, values_at, whole_lines(values_at + cols)};
}

// The columns that all tiles of rows of a task are multiplied by before the next ones.
constexpr int kBlockColumnsAtOnce = 256;
// Bytes of LinearTask::scratch: the sums of the rows, [1 + kMaxEarlierSums][rows][32] in float32.
constexpr int64_t BlockScratchBytes(int num_rows) {
  return int64_t{1 + kMaxEarlierSums} * num_rows * kPanelColumns * 4;
}

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_LINEAR_BLOCK_PANELS_H_
