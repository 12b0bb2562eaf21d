// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_
#define QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_

#include <memory>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_options.h"

namespace quire::cuda {

// Returns why the library has no kernels for heads of that size. Returns an empty string if it has.
std::string WhyNoHeads(int head_dim);

// Returns null, and the reason in one line, when there are no kernels for heads of options.head_dim, `library` cannot
// be loaded, there is no such GPU, or it is older than sm_80. They are checked in this order, so the first is told on a
// machine without a GPU, too.
//
// The code that needs CUDA is in a separate library, which is loaded here. `library` is its path. If that is empty, the
// library is libquire_cuda.so in the folder of the running program. There are two reasons to load it. One program runs
// with and without CUDA. And cuBLAS has 94 KB of thread-local storage, which would be taken out of the stack of every
// thread if it were linked to the program. The metrics server's threads, with stacks of 100 KB, would not start.
std::unique_ptr<Device> OpenDevice(const std::string& library, const DeviceOptions& options, std::string* why_not);

// The type of OpenDevice, and of functions that replace it in tests.
using DeviceOpener = decltype(&OpenDevice);

// The same function inside that library, and its name there.
using OpenCudaDeviceFunction = std::unique_ptr<Device>(const DeviceOptions& options, std::string* why_not);
inline constexpr char kOpenCudaDevice[] = "quire_open_cuda_device";

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_
