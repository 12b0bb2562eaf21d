// SPDX-License-Identifier: Apache-2.0

// The entry point of libquire_cuda.so.

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/line_writer.h"
#include "kernels/cuda/open_device.h"

namespace quire::cuda {

extern "C" OpenCudaDeviceFunction quire_open_cuda_device;

std::unique_ptr<Device> quire_open_cuda_device(const DeviceOptions& options, std::string* why_not) {
  SetLineWriter(options.write_line);
  return CudaDevice::Create(options, why_not);
}

}  // namespace quire::cuda
