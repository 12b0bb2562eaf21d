#include "kernels/cuda/open_device.h"

// Stands for cuda_device.cc where there is no nvcc.

namespace quire::cuda {

std::unique_ptr<Device> OpenDevice(const DeviceOptions&, std::string* why_not) {
  *why_not = "this program was built without CUDA";
  return nullptr;
}

}  // namespace quire::cuda
