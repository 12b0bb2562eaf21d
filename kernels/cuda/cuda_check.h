#ifndef QUIRE_KERNELS_CUDA_CUDA_CHECK_H_
#define QUIRE_KERNELS_CUDA_CUDA_CHECK_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace quire::cuda {

// Ends the process when a call has failed, with one line: the call, in the manner of printf, what it answered and the
// device. For what cannot be mended; kernels report their own faults at the next call that waits for them.
//
//   CheckCuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
[[gnu::format(printf, 2, 3)]] void CheckCuda(cudaError_t answer, const char* call, ...);
[[gnu::format(printf, 2, 3)]] void CheckCublas(cublasStatus_t answer, const char* call, ...);

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_CUDA_CHECK_H_
