#ifndef QUIRE_KERNELS_PYTHON_GPU_H_
#define QUIRE_KERNELS_PYTHON_GPU_H_

#include <cstddef>

#include "kernels/paged_attention.h"

// What the module needs of GPUs: gpu_cuda.cc with the CUDA part, gpu_none.cc without.
namespace quire::gpu {

// Arrays on GPU `device`. Done when it returns, for then the arrays go back to their libraries; in the order of
// `stream`, a cudaStream_t.
PagedAttentionStatus Forward(const PagedAttentionArgs& args, int device, void* stream);

// Null when there is no memory or no GPU.
void* Allocate(int device, size_t bytes);
void Free(int device, void* memory);

}  // namespace quire::gpu

#endif  // QUIRE_KERNELS_PYTHON_GPU_H_
