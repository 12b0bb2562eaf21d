// SPDX-License-Identifier: Apache-2.0

// Tests the first GPU. Environment variables of a run: with QUIRE_GPU_EXACT, results of multiplications do not depend
// on the number of rows. With QUIRE_GPU_OVERLAP, kernels are set up while earlier ones end. With QUIRE_GPU_REQUIRED,
// the program ends with exit code 77 if there is no GPU.

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/cuda_device.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

constexpr int kNoGpu = 77;

}  // namespace

std::unique_ptr<Device> MakeDeviceUnderTest(std::string* reason) {
  DeviceOptions options;
  options.exact = std::getenv("QUIRE_GPU_EXACT") != nullptr;
  options.overlaps_launches = std::getenv("QUIRE_GPU_OVERLAP") != nullptr;
  options.longest_wait = std::chrono::hours(1);  // Who runs the tests limits their time.
  std::unique_ptr<Device> device = CudaDevice::Create(options, reason);
  if (device == nullptr && std::getenv("QUIRE_GPU_REQUIRED") != nullptr) {
    std::fprintf(stderr, "no GPU here: %s\n", reason->c_str());
    std::_Exit(kNoGpu);
  }
  return device;
}

}  // namespace quire::cuda
