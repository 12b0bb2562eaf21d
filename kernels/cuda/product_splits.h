// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_PRODUCT_SPLITS_H_
#define QUIRE_KERNELS_CUDA_PRODUCT_SPLITS_H_

#include <algorithm>
#include <cstdint>

namespace quire::cuda {

constexpr int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// How the columns of a matrix are divided among thread blocks.
struct ProductSplits {
  int count;
  int blocks;  // Of columns, in each split.

  // With `num_grid_blocks` thread blocks for each split, there are about two for each multiprocessor, if the columns
  // suffice.
  static ProductSplits Of(int num_column_blocks, int64_t num_grid_blocks, int num_multiprocessors) {
    constexpr int kWantedPerMultiprocessor = 2, kLeastBlocks = 2;
    const int wanted = int(kWantedPerMultiprocessor * num_multiprocessors / num_grid_blocks);
    const int count = std::clamp(wanted, 1, std::max(1, num_column_blocks / kLeastBlocks));
    const int blocks = int(CeilDivide(num_column_blocks, count));
    return {int(CeilDivide(num_column_blocks, blocks)), blocks};
  }
};

// Returns how many thread blocks to launch for `count` pieces of work when each block does `per_block` of them.
inline int NumProductBlocks(int64_t count, int per_block) {
  constexpr int64_t kMost = 1 << 16;  // With more work, each block of the kernel loops.
  return int(std::clamp<int64_t>(CeilDivide(count, per_block), 1, kMost));
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_PRODUCT_SPLITS_H_
