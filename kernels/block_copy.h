// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_BLOCK_COPY_H_
#define QUIRE_KERNELS_BLOCK_COPY_H_

#include <cstdint>

#include "kernels/kv_layout.h"

namespace quire {

// Copies whole blocks in every layer. Copy-on-write uses this.
struct BlockCopyArgs {
  const uint32_t* sources;       // [num_copies], host memory.
  const uint32_t* destinations;  // [num_copies], host memory. No block is both a source and a destination.
  int num_copies;
  const KvLayout* layout;
  void* const* kv_pools;  // [num_layers]
};

enum class SwapDirection { kOut, kIn };

// Copies whole blocks in all layers from the pool to the host tier or back. The host tier is memory of
// Backend::AllocateHost. Each of its blocks is contiguous: [number of host blocks][num_layers][block_bytes].
struct BlockSwapArgs {
  SwapDirection direction;
  const uint32_t* blocks;       // [num_swaps] blocks of the pool; the array is in host memory.
  const uint32_t* host_blocks;  // [num_swaps] of the host tier, in host memory. No destination occurs twice.
  int num_swaps;
  const KvLayout* layout;
  void* const* kv_pools;  // [num_layers]
  void* host_pool;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_BLOCK_COPY_H_
