// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {

std::unique_ptr<Device> MakeDeviceUnderTest(std::string* /*reason*/) {
  return std::make_unique<EmulatedDevice>(/*is_sm90=*/true);
}

}  // namespace quire::cuda
