// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_BLOCKS_H_
#define QUIRE_KERNELS_BLOCKS_H_

#include <cstdint>

#include "kernels/half_float.h"

// Matrices whose rows are stored in blocks of columns, each with scales of its own, as in GGUF files. Products multiply
// the numbers as they are stored.
namespace quire {

// The types of blocks. A block of kQ8_0 has 32 columns and one scale. The others have 256 columns, and groups of them
// have a small scale, and in kQ4_K and kQ5_K also a small minimum.
enum class BlockType : uint8_t { kQ8_0, kQ4_K, kQ5_K, kQ6_K };

struct BlockShape {
  int columns;
  int bytes;
  int group;         // Columns with the same scale and minimum.
  bool has_minima;   // Whether a minimum is subtracted.
  int packed_bytes;  // Of a block in the memory of a CPU.
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
      return {256, 210, 16, false, 210};
  }
  return {32, 34, 32, false, 34};
}

constexpr int kMaxBlockColumns = 256;
constexpr int kMaxBlockGroups = 16;

// The numbers of a block. The weight of column k is
//   scale * scales[k / group] * numbers[k] - minimum * minima[k / group]
// where a product of two scales, or of two minima, is exact in float32.
struct BlockNumbers {
  Float16 scale;
  Float16 minimum;                   // Only with minima.
  int8_t scales[kMaxBlockGroups];    // 1 in kQ8_0, [0, 63] in kQ4_K and kQ5_K.
  uint8_t minima[kMaxBlockGroups];   // [0, 63]. Only with minima.
  int8_t numbers[kMaxBlockColumns];  // [-128, 127], [0, 15], [0, 31] or [-32, 31].
};

// Reads the block of this type that begins at `block`.
void UnpackBlock(BlockType type, const uint8_t* block, BlockNumbers* numbers);

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
