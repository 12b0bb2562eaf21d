#ifndef QUIRE_KERNELS_PYTHON_GPU_H_
#define QUIRE_KERNELS_PYTHON_GPU_H_

#include <cstddef>

#include "kernels/paged_attention.h"

// What the module needs of GPUs: gpu_cuda.cc with the CUDA part, gpu_none.cc without.
namespace quire::gpu {

// Arrays on GPU `device`; the work is queued on `stream`, a cudaStream_t.
PagedAttentionStatus Forward(const PagedAttentionArgs& args, int device, void* stream);

// Null when there is no memory or no GPU.
void* Allocate(int device, size_t bytes);
void Free(int device, void* memory);
// Until all that was queued on the device is done.
void Wait(int device);

}  // namespace quire::gpu

#endif  // QUIRE_KERNELS_PYTHON_GPU_H_
