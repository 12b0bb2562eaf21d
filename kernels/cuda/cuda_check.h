// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_CUDA_CHECK_H_
#define QUIRE_KERNELS_CUDA_CUDA_CHECK_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string>

namespace quire::cuda {

// Ends the process if a call has failed. One line says which call (formatted like printf), its error and the device.
// Use it for errors from which the process cannot recover. A kernel's own fault is reported by the next call that waits
// for it.
//
//   CheckCuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
[[gnu::format(printf, 2, 3)]] void CheckCuda(cudaError_t answer, const char* call, ...);
[[gnu::format(printf, 2, 3)]] void CheckCublas(cublasStatus_t answer, const char* call, ...);

// Says how these lines name the device: CUDA may not answer any more when they are needed. A process uses one device.
void NameDeviceInErrors(const std::string& description);

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_CUDA_CHECK_H_
