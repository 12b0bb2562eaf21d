// SPDX-License-Identifier: Apache-2.0

// The options of a real GPU.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/cuda/cuda_device.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

using GpuOptionsTest = DeviceTest;

TEST_F(GpuOptionsTest, KernelsOfWarpGroupsCanBeTurnedOff) {
  const bool is_sm90 = device()->Description().find(", sm_90, ") != std::string::npos;
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

TEST_F(GpuOptionsTest, TheAddressIsPartOfTheDescriptionAndNotOfTheNumerics) {
  const std::string description = device()->Description();
  const size_t at = description.find(", PCI ");
  ASSERT_NE(at, std::string::npos) << description;
  EXPECT_EQ(device()->NumericsFingerprint().find("PCI"), std::string::npos);
  EXPECT_TRUE(device()->NumericsFingerprint().starts_with(description.substr(0, at))) << description;
}

// Who only asks whether work is done must get an end, too.
TEST_F(GpuOptionsTest, ADeviceThatHangsEndsTheProcessWhetherSomebodyWaitsOrAsks) {
  const auto hang = [](bool waits) {
    DeviceOptions options;
    options.longest_wait = std::chrono::milliseconds(-1);  // Even a device that has just got work seems to hang.
    std::string reason;
    const std::unique_ptr<Device> device = CudaDevice::Create(options, &reason);
    constexpr size_t kBytes = size_t{64} << 20;
    char* const memory = static_cast<char*>(device->Allocate(2 * kBytes));
    for (int i = 0; i < 1000; ++i) {
      device->Copy(memory, memory + kBytes, kBytes);
      const uint64_t mark = device->Mark();
      if (waits) device->Wait(mark);
      if (!waits) device->IsDone(mark);
    }
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool waits : {false, true}) {
    EXPECT_EXIT(hang(waits), testing::ExitedWithCode(EXIT_FAILURE), ", PCI .* has not finished its work in -1 ms");
  }
}

}  // namespace
}  // namespace quire::cuda
