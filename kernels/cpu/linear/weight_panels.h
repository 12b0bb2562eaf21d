// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_WEIGHT_PANELS_H_
#define QUIRE_KERNELS_CPU_LINEAR_WEIGHT_PANELS_H_

#include <cstdint>

namespace quire::cpu {

// How weights are stored. The first three formats match DataType, in the same order. kInt4, kInt4Float32 and
// kInt4BFloat16 have the same panels, and differ in the input. The input of kInt4Units is bfloat16, too. From kQ8_0
// on, they are blocks of kernels/blocks.h, in the order of BlockType.
enum class WeightFormat : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt8,
  kInt4,
  kInt4Float32,
  kInt4BFloat16,
  kInt4Units,
  kFp8,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kMXFP4
};
constexpr int kNumWeightFormats = 15;

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
//   blocks:           block_panels.h
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

constexpr bool IsInBlocks(WeightFormat format) {
  return format >= WeightFormat::kQ8_0;
}

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_LINEAR_WEIGHT_PANELS_H_
