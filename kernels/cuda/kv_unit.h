#ifndef QUIRE_KERNELS_CUDA_KV_UNIT_H_
#define QUIRE_KERNELS_CUDA_KV_UNIT_H_

#include "kernels/kv_layout.h"
#include "kernels/softmax_state.h"

namespace quire::cuda {

// How K and V of 16-bit elements lie inside a unit of the pool (kv_layout.h), and in shared memory, which is a straight
// copy of it.
//
// K, and then V, is a matrix of tokens by head dimensions in chunks of 8 elements, 16 bytes. 8 chunks of a row form a
// panel row of 128 bytes; a panel has those of all tokens, one after the other, and what is left of a head (head_dim
// 80: 2 chunks, 96: 4) forms a narrower last panel. Within its panel row a chunk lies where `token` has mixed it, so
// that the same chunk of 8 consecutive tokens is in 8 different groups of banks: ldmatrix reads it without a conflict.
//
// Example: head_dim 128, chunk 9 (elements 72 to 79) of token 3 in a unit of 16 tokens. It is chunk 1 of panel 1, which
// begins at 8 * 16; row 3, and 1 ^ 3 = 2: place 128 + 24 + 2 = 154.
//
// kTokens: tokens of the unit, 1, 2, 4, 8 or 16. kHeadDim: a multiple of 64, or that and 16 or 32.
template <int kTokens, int kHeadDim>
struct KvUnit {
  static_assert(kHeadDim % 64 == 0 || kHeadDim % 64 == 16 || kHeadDim % 64 == 32);
  static constexpr int kChunkElements = 8;
  static constexpr int kChunkBytes = 16;
  static constexpr int kRowChunks = kHeadDim / kChunkElements;
  static constexpr int kMatrixChunks = kTokens * kRowChunks;  // Of K, and of V.
  static constexpr int kMatrixBytes = kMatrixChunks * kChunkBytes;
  static constexpr int kBytes = 2 * kMatrixBytes;

  // Where a chunk lies, counted in chunks from the start of K or V.
  QUIRE_HOST_DEVICE static constexpr int Place(int token, int chunk) {
    const int panel = chunk / kPanelChunks, width = Width(panel);
    return panel * kPanelChunks * kTokens + token * width + Mixed(token, chunk % kPanelChunks, width);
  }
  // The opposite of Place.
  QUIRE_HOST_DEVICE static constexpr int TokenAt(int place) {
    const int panel = place / (kPanelChunks * kTokens);
    return place % (kPanelChunks * kTokens) / Width(panel);
  }
  QUIRE_HOST_DEVICE static constexpr int ChunkAt(int place) {
    const int panel = place / (kPanelChunks * kTokens), width = Width(panel);
    return panel * kPanelChunks + Mixed(TokenAt(place), place % width, width);
  }

 private:
  static constexpr int kPanelChunks = 8;

  QUIRE_HOST_DEVICE static constexpr int Width(int panel) {
    const int left = kRowChunks - panel * kPanelChunks;
    return left < kPanelChunks ? left : kPanelChunks;
  }
  // Rows of 8, 4 and 2 chunks: so many tokens pass before all banks have been used once.
  QUIRE_HOST_DEVICE static constexpr int Mixed(int token, int chunk, int width) {
    return chunk ^ (width == 8 ? token & 7 : width == 4 ? token >> 1 & 3 : token >> 2 & 1);
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_KV_UNIT_H_
