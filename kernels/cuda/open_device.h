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
// CUDA (no_device.cc).
std::unique_ptr<Device> OpenDevice(const DeviceOptions& options, std::string* why_not);

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_OPEN_DEVICE_H_
