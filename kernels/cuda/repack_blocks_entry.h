// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_REPACK_BLOCKS_ENTRY_H_
#define QUIRE_KERNELS_CUDA_REPACK_BLOCKS_ENTRY_H_

#include "kernels/cuda/kernel_table.h"

namespace quire::cuda {

struct RepackBlocksArgs;

// Returns the kernel that nvcc has compiled.
Kernel<RepackBlocksArgs> RepackBlocksEntry();

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_REPACK_BLOCKS_ENTRY_H_
