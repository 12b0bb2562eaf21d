#ifndef QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_
#define QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_

#include <memory>
#include <string>

#include "kernels/cuda/device.h"

namespace quire::cuda {

struct DeviceOptions {
  int ordinal = 0;  // GPU number in the order of CUDA.
  // Use one way to multiply for every number of rows; see matmul.h.
  bool exact = false;
  // File that keeps the results of tuning between starts; empty means none.
  std::string tuning_cache;
};

// Returns null, and the reason in one line, when there is no such GPU, it is older than sm_80, or the program was built
// without CUDA.
//
// The code that needs CUDA is in a separate library, libquire_cuda.so beside the program, which is loaded here. There
// are two reasons. One program runs with and without CUDA. And cuBLAS has 94 KB of thread-local storage, which would be
// taken out of the stack of every thread if it were linked to the program. The metrics server's threads, with stacks of
// 100 KB, would not start.
std::unique_ptr<Device> OpenDevice(const DeviceOptions& options, std::string* why_not);

// The same function inside that library, and its name there.
using OpenCudaDeviceFunction = std::unique_ptr<Device>(const DeviceOptions& options, std::string* why_not);
inline constexpr char kOpenCudaDevice[] = "quire_open_cuda_device";

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_
