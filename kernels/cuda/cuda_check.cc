// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_check.h"

#include <cstdarg>
#include <cstdio>

#include "kernels/cuda/fatal.h"

namespace quire::cuda {
namespace {

char device_name[320] = "a device";  // Without destructor: lines are written while the process ends.

[[noreturn]] void Die(const char* call, std::va_list arguments, const char* name, const char* meaning) {
  char text[400];
  std::vsnprintf(text, sizeof(text), call, arguments);
  Fatal("%s failed on %s: %s, %s", text, device_name, name, meaning);
}

}  // namespace

void NameDeviceInErrors(const std::string& description) {
  std::snprintf(device_name, sizeof(device_name), "%s", description.c_str());
}

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
