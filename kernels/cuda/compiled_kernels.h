// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_COMPILED_KERNELS_H_
#define QUIRE_KERNELS_CUDA_COMPILED_KERNELS_H_

#include "kernels/cuda/kernel_table.h"
#include "kernels/types.h"

namespace quire::cuda {

constexpr size_t kPlainSharedBytes = 48 << 10;  // Shared memory that a kernel gets without a special attribute.

// Returns the kernels that nvcc has compiled. They are for bfloat16 and float16, heads of 32, 64, 80, 96, 128 and 256,
// and blocks of 1, 2, 4, 8 or a multiple of 16 tokens; the result is null for others. cudaLaunchKernel starts `entry`.
// With `is_sm90`, the device has compute capability 9.0, and the table can have kernels that no other device runs.
const KernelTable* FindCompiledKernels(DataType element, int head_dim, int block_size, bool is_sm90);

// The parts of that table. Each is compiled in a file of its own and returns null for other heads.
const KernelTable* FindBf16KernelsTo96(int head_dim, int block_size, bool is_sm90);
const KernelTable* FindBf16KernelsFrom128(int head_dim, int block_size, bool is_sm90);
const KernelTable* FindF16KernelsTo96(int head_dim, int block_size, bool is_sm90);
const KernelTable* FindF16KernelsFrom128(int head_dim, int block_size, bool is_sm90);

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_COMPILED_KERNELS_H_
