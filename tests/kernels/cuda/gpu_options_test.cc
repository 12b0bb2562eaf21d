// SPDX-License-Identifier: Apache-2.0

// The options of a real GPU.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/cuda/cuda_device.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

using GpuOptionsTest = DeviceTest;

TEST_F(GpuOptionsTest, KernelsOfWarpGroupsCanBeTurnedOff) {
  const bool is_sm90 = device()->Description().ends_with("sm_90");
  DeviceOptions options;
  options.warp_groups = false;
  std::string reason;
  const std::unique_ptr<Device> without = CudaDevice::Create(options, &reason);
  ASSERT_NE(without, nullptr) << reason;
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const int head_dim : {64, 128}) {
      EXPECT_EQ(device()->FindKernels(type, head_dim, 16)->attention_prefill_sm90.entry != nullptr, is_sm90);
      const KernelTable& table = *without->FindKernels(type, head_dim, 16);
      EXPECT_EQ(table.attention_prefill_sm90.entry, nullptr);
      EXPECT_NE(table.attention_prefill.entry, nullptr);
    }
  }
}

}  // namespace
}  // namespace quire::cuda
