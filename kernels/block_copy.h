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

}  // namespace quire

#endif  // QUIRE_KERNELS_BLOCK_COPY_H_
