// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/memory.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/rounding.h"

namespace quire::cpu {
namespace {

// A part of the memory before the first huge page, or behind the last one, would be in small pages.
TEST(CpuMemoryTest, LargeMemoryBeginsWithAHugePage) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const Memory others[] = {Memory(5000), Memory(kHugePage + 5000)};  // They move what is mapped next.
  for (const size_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage - 1, 7 * kHugePage + 4096}) {
    const Memory memory(bytes);
    ASSERT_NE(memory.data(), nullptr);
    EXPECT_EQ(memory.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kHugePage, 0) << bytes;
    char* const data = static_cast<char*>(memory.data());
    EXPECT_TRUE(std::all_of(data, data + bytes, [](char c) { return c == 0; })) << bytes;
    std::fill(data, data + bytes, 1);
  }
  EXPECT_NE(others[0].data(), others[1].data());
}

TEST(CpuMemoryTest, SmallMemoryIsZeroed) {
  const Memory memory(100);
  ASSERT_NE(memory.data(), nullptr);
  const char* const data = static_cast<const char*>(memory.data());
  EXPECT_TRUE(std::all_of(data, data + 100, [](char c) { return c == 0; }));
}

TEST(CpuMemoryTest, MemoryThatCannotExistIsEmpty) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2}) EXPECT_EQ(Memory(bytes).data(), nullptr) << bytes;
}

TEST(CpuMemoryTest, GrowingKeepsWhatIsLargeEnough) {
  Memory memory(100);
  void* const data = memory.data();
  EXPECT_EQ(GrownTo(100, &memory), data);
  EXPECT_NE(GrownTo(10'000'000, &memory), nullptr);
  EXPECT_EQ(memory.bytes(), 10'000'000);
}

TEST(CpuMemoryTest, GrowingBeyondTheSystemsMemorySaysHowMuchWasNeeded) {
  Memory memory;
  const size_t bytes = SIZE_MAX / 2;
  try {
    GrownTo(bytes, &memory);
    FAIL() << "this amount of memory cannot exist";
  } catch (const std::bad_alloc& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(bytes) + " bytes"));
  }
}

// The last matrix of an MLP can have 18,944 columns. More than 113,359 rows of them have 2^31 elements or more.
TEST(CpuMemoryTest, TheBytesOfAMatrixAreExactBeyondTheRangeOfAnInt) {
  EXPECT_EQ(MatrixBytes(3, 5, sizeof(float)), 60u);
  for (const int num_rows : {113'360, 131'072, 1 << 20}) {
    EXPECT_EQ(MatrixBytes(num_rows, 18'944, sizeof(float)), uint64_t{4} * 18'944 * uint64_t(num_rows)) << num_rows;
  }
}

}  // namespace
}  // namespace quire::cpu
