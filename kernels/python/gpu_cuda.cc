// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>

#include "kernels/cuda/paged_attention.h"
#include "kernels/python/gpu.h"

namespace quire::gpu {
namespace {

// Makes a device the thread's current one while this object exists.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess) error_ = cudaSetDevice(device);
  }
  ~CurrentDevice() { cudaSetDevice(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  cudaError_t error_;
};

}  // namespace

PagedAttentionStatus Forward(const PagedAttentionArgs& args, int device, void* stream) {
  const CurrentDevice current(device);
  cudaError_t error = current.error();
  if (error == cudaSuccess) {
    PagedAttentionStatus status = paged_attention_cuda_forward(args, static_cast<cudaStream_t>(stream));
    if (!status.ok()) return status;
    error = cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
  }
  if (error == cudaSuccess) return {};
  return PagedAttentionStatus::Unavailable("GPU " + std::to_string(device) + " answered " + cudaGetErrorName(error) +
                                           ", " + cudaGetErrorString(error));
}

void* Allocate(int device, size_t bytes) {
  const CurrentDevice current(device);
  void* memory = nullptr;
  return current.error() == cudaSuccess && cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}

void Free(int device, void* memory) {
  const CurrentDevice current(device);
  cudaFree(memory);
}

}  // namespace quire::gpu
