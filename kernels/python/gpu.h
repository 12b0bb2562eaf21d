// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_PYTHON_GPU_H_
#define QUIRE_KERNELS_PYTHON_GPU_H_

#include <cstddef>

#include "kernels/paged_attention.h"

// The GPU functions that the module needs. gpu_cuda.cc implements them with CUDA; gpu_none.cc is for builds without it.
namespace quire::gpu {

// Runs the step on arrays of GPU `device`, in the order of `stream`, a cudaStream_t. The work is finished on return,
// because the arrays are then returned to their libraries.
PagedAttentionStatus Forward(const PagedAttentionArgs& args, int device, void* stream);

// Returns null when there is no memory or no GPU.
void* Allocate(int device, size_t bytes);
void Free(int device, void* memory);

}  // namespace quire::gpu

#endif  // QUIRE_KERNELS_PYTHON_GPU_H_
