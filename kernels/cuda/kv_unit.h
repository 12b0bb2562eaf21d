// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_KV_UNIT_H_
#define QUIRE_KERNELS_CUDA_KV_UNIT_H_

#include "kernels/kv_layout.h"
#include "kernels/softmax_state.h"

namespace quire::cuda {

// The units of a pool. A full unit has 16 tokens, which the kernels know at compile time. A small unit is a whole block
// of 1, 2, 4 or 8 tokens, which they know only at run time.
enum class UnitSize { kFull, kSmall };

template <UnitSize kSize>
QUIRE_HOST_DEVICE constexpr int UnitTokens(int block_size) {
  return kSize == UnitSize::kFull ? KvLayout::kUnitTokens : block_size;
}

// Returns the unit of a context that holds the token. It uses a shift, because a division by a run-time value would
// need more registers.
template <UnitSize kSize>
QUIRE_HOST_DEVICE constexpr int UnitIndex(int token, int block_size) {
  const int log2_of_small = (block_size > 1) + (block_size > 2) + (block_size > 4);
  return kSize == UnitSize::kFull ? token / KvLayout::kUnitTokens : token >> log2_of_small;
}

template <UnitSize kSize>
QUIRE_HOST_DEVICE constexpr int UnitsPerBlock(int block_size) {
  return kSize == UnitSize::kFull ? block_size / KvLayout::kUnitTokens : 1;
}

// The layout of K and V inside a unit of the pool (kv_layout.h), and in shared memory, which holds an exact copy of the
// unit. Elements have 16 bits, or they are int8 and the unit ends with their scales.
//
// K, and then V, is a matrix of tokens by head dimensions in chunks of 16 bytes. 8 chunks of a row form a
// panel row of 128 bytes. A panel holds these rows of all tokens, one after the other. The rest of a head (head_dim 80:
// 2 chunks, 96: 4) forms a narrower last panel. Within its panel row, a chunk is moved to a place that depends on the
// token (Mixed). Therefore the same chunk of 8 consecutive tokens is in 8 different groups of banks, and ldmatrix reads
// it without a conflict.
//
// Example: head_dim 128, chunk 9 (elements 72 to 79) of token 3 in a unit of 16 tokens. It is chunk 1 of panel 1, which
// begins at 8 * 16 = 128. Row 3 begins at 3 * 8 = 24 in the panel, and the place in the row is 1 ^ 3 = 2. So the chunk
// is at 128 + 24 + 2 = 154.
//
// A chunk of int8 has 16 elements, of which element d is in byte d % 8 * 2 + d / 8. So ldmatrix gives a lane the bytes
// of elements 2t, 2t + 8, 2t + 1 and 2t + 9 of a token, or of elements g and g + 8 of two tokens, the same
// elements that it has of 16-bit ones after two loads (attention_tile_int8.h).
//
// kHeadDim is a multiple of 64, optionally plus 16 or 32.
template <int kHeadDim, int kElementBytes = 2>
struct KvUnit {
  static_assert(kHeadDim % 64 == 0 || kHeadDim % 64 == 16 || kHeadDim % 64 == 32);
  static constexpr int kChunkBytes = 16;
  static constexpr int kChunkElements = kChunkBytes / kElementBytes;
  static constexpr int kRowChunks = kHeadDim / kChunkElements;
  static constexpr int kPanelChunks = 8;

  int num_tokens;  // 1, 2, 4, 8 or 16.

  // Number of chunks of K, and of V.
  QUIRE_HOST_DEVICE constexpr int matrix_chunks() const { return num_tokens * kRowChunks; }
  QUIRE_HOST_DEVICE constexpr int matrix_bytes() const { return matrix_chunks() * kChunkBytes; }
  QUIRE_HOST_DEVICE constexpr int bytes() const {
    return kElementBytes == 1 ? 2 * (matrix_bytes() + scale_bytes()) : 2 * matrix_bytes();
  }
  // Bytes of the scales of K, which follow V. The scales of V are the last ones and have the same size.
  QUIRE_HOST_DEVICE constexpr int scale_bytes() const {
    return kElementBytes == 1 ? num_tokens * int(sizeof(float)) : 0;
  }

  // Returns the place of a chunk, counted in chunks from the start of K or V.
  QUIRE_HOST_DEVICE constexpr int Place(int token, int chunk) const {
    const int panel = chunk / kPanelChunks, width = Width(panel);
    return panel * kPanelChunks * num_tokens + token * width + Mixed(token, chunk % kPanelChunks, width);
  }
  // The inverse of Place.
  QUIRE_HOST_DEVICE constexpr int TokenAt(int place) const {
    const int panel = place / (kPanelChunks * num_tokens), rest = place % (kPanelChunks * num_tokens);
    return IsNarrow(panel) ? rest / kNarrowDivisor : rest / kPanelChunks;
  }
  QUIRE_HOST_DEVICE constexpr int ChunkAt(int place) const {
    const int panel = place / (kPanelChunks * num_tokens), width = Width(panel);
    return panel * kPanelChunks + Mixed(TokenAt(place), place % width, width);
  }

 private:
  static constexpr int kNarrowChunks =
      kRowChunks % kPanelChunks;  // Width of the narrow last panel; 0 if there is none.
  // Widths that the compiler knows make shifts of the divisions.
  static constexpr int kNarrowDivisor = kNarrowChunks == 0 ? 1 : kNarrowChunks;

  QUIRE_HOST_DEVICE static constexpr bool IsNarrow(int panel) {
    return kNarrowChunks != 0 && panel == kRowChunks / kPanelChunks;
  }
  QUIRE_HOST_DEVICE static constexpr int Width(int panel) { return IsNarrow(panel) ? kNarrowChunks : kPanelChunks; }
  // A row has `width` chunks. If these are 8, 4 or 2, all banks have been used once after 1, 2 or 4 tokens, after which
  // the place changes. With 6 chunks, which only int8 has, four tokens use every other group of banks. With an odd
  // number, 8 tokens use all groups of banks as they are.
  QUIRE_HOST_DEVICE static constexpr int Mixed(int token, int chunk, int width) {
    if (kNarrowChunks % 2 == 1 && width == kNarrowChunks) return chunk;
    return chunk ^ (width == 8 ? token & 7 : width == 4 ? token >> 1 & 3 : token >> 2 & 1);
  }
};

// The units of kernels for this type of elements (element.h).
template <typename Element, int kHeadDim>
using KvUnitOf = KvUnit<kHeadDim, Element::kKvBytes>;

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_KV_UNIT_H_
