// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_PRODUCT_SPLITS_H_
#define QUIRE_KERNELS_CUDA_PRODUCT_SPLITS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"

namespace quire::cuda {

// The columns of a matrix are divided among thread blocks in this way.
struct ProductSplits {
  int count;
  int blocks;  // Number of blocks of columns of each split.

  // With `num_grid_blocks` thread blocks for each split, there are about two for each multiprocessor, if the columns
  // suffice.
  static ProductSplits Of(int num_column_blocks, int64_t num_grid_blocks, int num_multiprocessors) {
    constexpr int kWantedPerMultiprocessor = 2, kLeastBlocks = 2;
    const int wanted = int(kWantedPerMultiprocessor * num_multiprocessors / num_grid_blocks);
    const int count = std::clamp(wanted, 1, std::max(1, num_column_blocks / kLeastBlocks));
    const int blocks = CeilDiv(num_column_blocks, count);
    return {CeilDiv(num_column_blocks, blocks), blocks};
  }
};

// The thread blocks of a product by a matrix, and the sums of its splits.
struct ProductGrid {
  int num_column_blocks;
  int num_row_blocks;
  int block_tokens;  // The most tokens of a thread block.
  int num_multiprocessors;

  int NumTokenBlocks(int num_tokens) const { return CeilDiv(num_tokens, block_tokens); }
  ProductSplits SplitsOf(int num_tokens) const {
    return ProductSplits::Of(num_column_blocks, int64_t{num_row_blocks} * NumTokenBlocks(num_tokens),
                             num_multiprocessors);
  }
  // Returns the distance between the sums of two splits: room for [num_tokens, rows], which begins at a multiple of
  // eight sums.
  static int64_t SplitStride(int num_tokens, int rows) { return CeilDiv(int64_t{num_tokens} * rows, 8) * 8; }
  // Returns the most sums that the splits of 1 to `num_tokens` tokens have, if there are several splits. Fewer tokens
  // can have more sums, because they have more splits. A worker runs steps of a few sizes at its start and then gives
  // the rest of the memory to the pool, so a product takes the memory for all smaller ones.
  int64_t MostSums(int num_tokens, int rows) const {
    int64_t most = 0;
    for (int tokens = std::min(block_tokens, num_tokens);; tokens = std::min(tokens + block_tokens, num_tokens)) {
      const int count = SplitsOf(tokens).count;
      if (count > 1) most = std::max(most, count * SplitStride(tokens, rows));
      if (tokens == num_tokens) return most;
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_PRODUCT_SPLITS_H_
