// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_DEVICE_UNDER_TEST_H_
#define QUIRE_TESTS_KERNELS_CUDA_DEVICE_UNDER_TEST_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/cuda/device.h"
#include "tests/kernels/cuda/launched_kernels.h"

namespace quire::cuda {

// Returns the device that a program tests: the emulated one (emulated_under_test.cc) or a GPU (gpu_under_test.cc).
// Returns null and sets the reason when this machine has none.
std::unique_ptr<Device> MakeDeviceUnderTest(std::string* reason);

// Each test has its own device. Without one the test is skipped.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    device_ = MakeDeviceUnderTest(&reason);
    if (device_ == nullptr) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    if (device_ != nullptr) NoteLaunchedKernels(*device_);
  }

  Device* device() const { return device_.get(); }
  // Returns whether the device is a GPU on which products of a row do not depend on the other rows.
  bool IsExactGpu() const { return device_->NumericsFingerprint().ends_with(", exact"); }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_DEVICE_UNDER_TEST_H_
