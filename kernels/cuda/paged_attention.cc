// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/paged_attention.h"

#include "kernels/cuda/compiled_kernels.h"
#include "kernels/cuda/paged_attention_run.h"
#include "kernels/cuda/repack_blocks_entry.h"

namespace quire {
namespace {

// A stream of the current device. It remembers the first error and does nothing after it.
class Stream {
 public:
  explicit Stream(cudaStream_t stream) : stream_(stream) {}

  cudaError_t error() const { return error_; }

  void* Allocate(size_t bytes) {
    if (error_ != cudaSuccess) return nullptr;
    void* memory = nullptr;
    const cudaError_t error = cudaMallocAsync(&memory, bytes, stream_);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // Clears the error.
      return nullptr;
    }
    Keep(error);
    if (error_ == cudaSuccess) Keep(cudaMemsetAsync(memory, 0, bytes, stream_));
    return memory;
  }
  void Free(void* memory) { Keep(cudaFreeAsync(memory, stream_)); }
  // Host memory is pageable, so CUDA has read it, or written it, when this function or Synchronize returns.
  void Copy(void* to, const void* from, size_t bytes) {
    if (error_ == cudaSuccess) Keep(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
  }
  void Synchronize() {
    if (error_ == cudaSuccess) Keep(cudaStreamSynchronize(stream_));
  }

  // Returns null when there are no such kernels, or the device does not have enough shared memory for them.
  const cuda::KernelTable* FindKernels(DataType type, int head_dim, int block_size) {
    const cuda::KernelTable* const table = cuda::FindCompiledKernels(type, head_dim, block_size, /*is_sm90=*/false);
    if (table == nullptr) return nullptr;
    int device = 0, shared_bytes = 0;
    Keep(cudaGetDevice(&device));
    Keep(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    const size_t needed = std::max(table->attention_decode.shared_bytes, table->attention_prefill.shared_bytes);
    return needed <= size_t(shared_bytes) ? table : nullptr;
  }

  template <typename Args>
  void Launch(const cuda::Kernel<Args>& kernel, const Args& args, int num_blocks) {
    if (error_ != cudaSuccess) return;
    if (kernel.shared_bytes > cuda::kPlainSharedBytes) {
      Keep(cudaFuncSetAttribute(kernel.entry, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kernel.shared_bytes)));
    }
    void* parameters[] = {const_cast<Args*>(&args)};
    Keep(cudaLaunchKernel(kernel.entry, dim3(num_blocks), dim3(kernel.num_threads), parameters, kernel.shared_bytes,
                          stream_));
  }

 private:
  void Keep(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }

  const cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace

PagedAttentionStatus paged_attention_cuda_forward(const PagedAttentionArgs& args, cudaStream_t stream) {
  Stream device(stream);
  PagedAttentionStatus status = cuda::PagedAttentionRun<Stream>(args, cuda::RepackBlocksEntry(), &device).Run();
  // After an error, all later results are meaningless, including the status.
  if (device.error() != cudaSuccess) {
    return PagedAttentionStatus::Unavailable(std::string("the GPU answered ") + cudaGetErrorName(device.error()) +
                                             ", " + cudaGetErrorString(device.error()));
  }
  return status;
}

}  // namespace quire
