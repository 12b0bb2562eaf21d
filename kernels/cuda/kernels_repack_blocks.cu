// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/repack_blocks.h"
#include "kernels/cuda/repack_blocks_entry.h"

namespace quire::cuda {
namespace {

__global__ void __launch_bounds__(RepackBlocksKernel::kThreads)
    RepackBlocks(const __grid_constant__ RepackBlocksArgs args) {
  RepackBlocksKernel::Run(args);
}

}  // namespace

Kernel<RepackBlocksArgs> RepackBlocksEntry() {
  Kernel<RepackBlocksArgs> kernel;
  kernel.entry = reinterpret_cast<const void*>(&RepackBlocks);
  kernel.num_threads = RepackBlocksKernel::kThreads;
  return kernel;
}

}  // namespace quire::cuda
