// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_check.h"

#include <cstdarg>
#include <cstdio>

#include "kernels/cuda/fatal.h"

namespace quire::cuda {
namespace {

[[noreturn]] void Die(const char* call, std::va_list arguments, const char* name, const char* meaning) {
  char text[400];
  std::vsnprintf(text, sizeof(text), call, arguments);
  int device = -1;
  cudaGetDevice(&device);  // This works even after a sticky error.
  Fatal("%s failed on device %d: %s, %s", text, device, name, meaning);
}

}  // namespace

void CheckCuda(cudaError_t answer, const char* call, ...) {
  if (answer == cudaSuccess) return;
  std::va_list arguments;
  va_start(arguments, call);
  Die(call, arguments, cudaGetErrorName(answer), cudaGetErrorString(answer));
}

void CheckCublas(cublasStatus_t answer, const char* call, ...) {
  if (answer == CUBLAS_STATUS_SUCCESS) return;
  std::va_list arguments;
  va_start(arguments, call);
  Die(call, arguments, cublasLtGetStatusName(answer), cublasLtGetStatusString(answer));
}

}  // namespace quire::cuda
