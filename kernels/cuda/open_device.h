#ifndef QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_
#define QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_

#include <memory>
#include <string>

#include "kernels/cuda/device.h"

namespace quire::cuda {

struct DeviceOptions {
  int ordinal = 0;  // Which GPU, as CUDA counts them.
  // One way to multiply for every number of rows; see Device::Multiply.
  bool exact = false;
  // File that keeps what tuning found, from start to start; empty: none.
  std::string tuning_cache;
};

// Null, and the reason in one line, when there is no such GPU, it is older than sm_80, or the program was built without
// CUDA.
//
// What needs CUDA is a library of its own, libquire_cuda.so beside the program, and is loaded here. So one program runs
// with and without CUDA; and cuBLAS has 94 KB of thread-local storage, which, linked to the program, is taken out of
// the stack of every thread: those of the metrics server, of 100 KB, would not start.
std::unique_ptr<Device> OpenDevice(const DeviceOptions& options, std::string* why_not);

// The same function inside of that library, and its name there.
using OpenCudaDeviceFunction = std::unique_ptr<Device>(const DeviceOptions& options, std::string* why_not);
inline constexpr char kOpenCudaDevice[] = "quire_open_cuda_device";

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_
