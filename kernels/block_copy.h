#ifndef QUIRE_KERNELS_BLOCK_COPY_H_
#define QUIRE_KERNELS_BLOCK_COPY_H_

#include <cstdint>

#include "kernels/kv_layout.h"

namespace quire {

// Copies whole blocks in every layer, for copy-on-write.
struct BlockCopyArgs {
  const uint32_t* sources;       // [num_copies], host memory.
  const uint32_t* destinations;  // [num_copies], host memory. No block is both source and destination.
  int num_copies;
  const KvLayout* layout;
  void* const* kv_pools;  // [num_layers]
};

enum class SwapDirection { kOut, kIn };

// Copies whole blocks, all layers, from the pool to the host tier or back. The host tier is memory of
// Backend::AllocateHost in which each block is one piece: [number of host blocks][num_layers][block_bytes].
struct BlockSwapArgs {
  SwapDirection direction;
  const uint32_t* blocks;       // [num_swaps] of the pool, host memory.
  const uint32_t* host_blocks;  // [num_swaps] of the host tier, host memory. No destination is there twice.
  int num_swaps;
  const KvLayout* layout;
  void* const* kv_pools;  // [num_layers]
  void* host_pool;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_BLOCK_COPY_H_
