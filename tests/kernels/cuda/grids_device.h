// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_GRIDS_DEVICE_H_
#define QUIRE_TESTS_KERNELS_CUDA_GRIDS_DEVICE_H_

#include <utility>
#include <vector>

#include "kernels/cuda/emulated_device.h"

namespace quire::cuda {

// An emulated device that remembers the kernels that were launched or recorded, and the sizes of their grids.
class GridsDevice : public EmulatedDevice {
 public:
  using EmulatedDevice::EmulatedDevice;

  std::vector<std::pair<const void*, int>> grids;

 protected:
  void LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args, size_t args_bytes,
                    int num_blocks) override {
    grids.emplace_back(entry, num_blocks);
    EmulatedDevice::LaunchKernel(entry, num_threads, shared_bytes, args, args_bytes, num_blocks);
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_GRIDS_DEVICE_H_
