// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_COPY_BLOCKS_H_
#define QUIRE_KERNELS_CUDA_COPY_BLOCKS_H_

#include <cstdint>

#include "kernels/simt/simt.h"

namespace quire::cuda {

// Copies whole blocks in all layers with one launch, for copy-on-write.
struct CopyBlocksArgs {
  const uint32_t* sources;       // [num_copies]
  const uint32_t* destinations;  // [num_copies] No block is both source and destination.
  int32_t num_copies;
  int32_t num_layers;
  int64_t block_bytes;    // Bytes of a block of one layer; a multiple of 16.
  char* const* kv_pools;  // [num_layers], in device memory.
};

// A thread block copies one block of one layer at a time.
class CopyBlocksKernel {
 public:
  using Args = CopyBlocksArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const CopyBlocksArgs& args) {
    simt::WaitForPriorGrid();
    for (int i = simt::BlockIndex(); i < args.num_copies * args.num_layers; i += simt::GridSize()) {
      const int copy = i / args.num_layers;
      char* const pool = simt::LoadReadOnly(args.kv_pools + i % args.num_layers);
      const char* const from = pool + simt::LoadReadOnly(args.sources + copy) * args.block_bytes;
      char* const to = pool + simt::LoadReadOnly(args.destinations + copy) * args.block_bytes;
      for (int64_t at = simt::ThreadIndex() * kWordBytes; at < args.block_bytes; at += kThreads * kWordBytes) {
        const simt::U32x4 word = simt::LoadGlobal(reinterpret_cast<const simt::U32x4*>(from + at));
        simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(to + at), word);
      }
    }
    simt::TriggerNextGrid();
  }

 private:
  static constexpr int64_t kWordBytes = sizeof(simt::U32x4);
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_COPY_BLOCKS_H_
