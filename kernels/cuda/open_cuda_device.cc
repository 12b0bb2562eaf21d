#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/open_device.h"

// Stands for no_device.cc where there is nvcc.

namespace quire::cuda {

std::unique_ptr<Device> OpenDevice(const DeviceOptions& options, std::string* why_not) {
  return CudaDevice::Create({.ordinal = options.ordinal, .exact = options.exact, .tuning_cache = options.tuning_cache},
                            why_not);
}

}  // namespace quire::cuda
