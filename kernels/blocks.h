// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_BLOCKS_H_
#define QUIRE_KERNELS_BLOCKS_H_

#include <cstdint>

#include "kernels/half_float.h"

// Matrices whose rows are stored in blocks of columns, each with scales of its own, as in GGUF files. Products multiply
// the numbers as they are stored.
namespace quire {

// The types of blocks. A block of kQ8_0, kIQ4_NL or kMXFP4 has 32 columns and one scale. The others have 256 columns,
// and groups of them have a small scale, and in kQ4_K and kQ5_K also a small minimum.
enum class BlockType : uint8_t { kQ8_0, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kMXFP4 };

struct BlockShape {
  int columns;
  int bytes;
  int group;         // Columns with the same scale and minimum.
  bool has_minima;   // Whether a minimum is subtracted.
  int packed_bytes;  // Of a block in the memory of a CPU.
  int scale_at = 0;  // Byte of the block at which its scale begins.
};

constexpr BlockShape ShapeOf(BlockType type) {
  switch (type) {
    case BlockType::kQ8_0:
      break;
    case BlockType::kQ4_K:
      return {256, 144, 32, true, 148};
    case BlockType::kQ5_K:
      return {256, 176, 32, true, 180};
    case BlockType::kQ6_K:
      return {256, 210, 16, false, 210, /*scale_at=*/208};
    case BlockType::kIQ4_NL:
      return {32, 18, 32, false, 18};
    case BlockType::kMXFP4:
      return {32, 17, 32, false, 18};
  }
  return {32, 34, 32, false, 34};
}

constexpr int kMaxBlockColumns = 256;
constexpr int kMaxBlockGroups = 16;

// The numbers that the codes of 4 bits in blocks of kIQ4_NL mean, and those in blocks of kMXFP4. The latter are E2M1
// (OCP Microscaling Formats Specification 1.0), times 2 to make them whole.
constexpr int8_t kIQ4_NLNumbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kMXFP4Numbers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// Returns null for a type without codes.
constexpr const int8_t* CodedNumbers(BlockType type) {
  return type == BlockType::kIQ4_NL ? kIQ4_NLNumbers : type == BlockType::kMXFP4 ? kMXFP4Numbers : nullptr;
}
// The scale of a block of kMXFP4 is a byte, and means 2^(byte - kMXFP4ScaleBias) for the doubled numbers. With a larger
// byte than this one, some of the weights are no finite float32.
constexpr int kMXFP4ScaleBias = 128;
constexpr int kMaxMXFP4Scale = 252;

// The numbers of a block. The weight of column k is
//   scale * scales[k / group] * numbers[k] - minimum * minima[k / group]
// where a product of two scales, or of two minima, is exact in float32.
struct BlockNumbers {
  float scale;                       // A power of two in kMXFP4, otherwise a number of float16.
  float minimum;                     // A number of float16. Only with minima.
  int8_t scales[kMaxBlockGroups];    // 1 if the block is one group, [0, 63] in kQ4_K and kQ5_K.
  uint8_t minima[kMaxBlockGroups];   // [0, 63]. Only with minima.
  int8_t numbers[kMaxBlockColumns];  // [-128, 127], [0, 15], [0, 31], [-32, 31], or CodedNumbers.
};

// Reads the block of this type that begins at `block`.
void UnpackBlock(BlockType type, const uint8_t* block, BlockNumbers* numbers);
// Writes the scale of a block, and the minimum if the type has minima. kMXFP4 has the power of two that is at most
// `scale`, without its sign.
void SetBlockScale(BlockType type, float scale, float minimum, uint8_t* block);

// A source matrix in blocks. Borrowed for the call.
struct BlockMatrixView {
  const uint8_t* blocks;  // [rows, cols / columns of a block]
  int rows;
  int cols;  // A multiple of the columns of a block.
  BlockType type;
  int num_slices = 1;  // As in MatrixView. Slices are whole groups.
};

}  // namespace quire

#endif  // QUIRE_KERNELS_BLOCKS_H_
