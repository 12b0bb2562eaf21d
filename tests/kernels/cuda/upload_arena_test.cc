// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/upload_arena.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/device_array.h"

namespace quire::cuda {
namespace {

// A device that gives no piece of more than `most_bytes`, and counts those that it has given.
class SmallDevice : public EmulatedDevice {
 public:
  void* Allocate(size_t bytes) override {
    if (bytes > most_bytes) return nullptr;
    ++num_allocations;
    return EmulatedDevice::Allocate(bytes);
  }
  void Free(void* memory) override {
    --num_allocations;
    EmulatedDevice::Free(memory);
  }

  size_t most_bytes = 1 << 20;
  int num_allocations = 0;
};

TEST(UploadArenaTest, WithoutMemoryForSpareRoomTheArenaGrowsByWhatItNeeds) {
  SmallDevice device;
  {
    UploadArena arena(&device);
    arena.Begin(1024);
    device.most_bytes = 1600;
    const std::vector<int32_t> values(400, 7);
    arena.Begin(UploadArena::BytesFor<int32_t>(values.size()));
    const int32_t* const on_device = arena.Add(values.data(), values.size());
    arena.Upload();
    DeviceArray<int32_t> copy(&device, values.size());
    device.Copy(copy.data(), on_device, values.size() * sizeof(int32_t));
    EXPECT_EQ(copy.Download(), values);
    EXPECT_EQ(device.num_allocations, 4) << "three of the arena, and the copy";
  }
  EXPECT_EQ(device.num_allocations, 0);
}

TEST(UploadArenaDeathTest, WithoutMemoryTheProcessEndsWithTheSize) {
  SmallDevice device;
  UploadArena arena(&device);
  device.most_bytes = 1000;
  EXPECT_EXIT(arena.Begin(1024), testing::ExitedWithCode(EXIT_FAILURE),
              "GPU: no memory for the arrays of a step: 1024 bytes");
}

}  // namespace
}  // namespace quire::cuda
