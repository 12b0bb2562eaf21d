// SPDX-License-Identifier: Apache-2.0

#include "scheduler/admission_control.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(AdmissionControlTest, WatermarkIsRoundedUp) {
  EXPECT_EQ(WatermarkBlocks(0, 100), 0);
  EXPECT_EQ(WatermarkBlocks(0.25, 8), 2);
  EXPECT_EQ(WatermarkBlocks(0.01, 50), 1);
  for (int percent = 0; percent <= 100; ++percent) {
    for (const int num_blocks : {1, 7, 20, 100, 4096, 100'000}) {
      EXPECT_EQ(WatermarkBlocks(0.01 * percent, num_blocks), (percent * num_blocks + 99) / 100) << percent;
    }
  }
}

TEST(AdmissionControlTest, NewcomersLeaveTheWatermarkFreeUnlessThePoolIsIdle) {
  EXPECT_TRUE(HasRoom(6, 8, 2, false));
  EXPECT_FALSE(HasRoom(7, 8, 2, false));
  EXPECT_TRUE(HasRoom(8, 8, 2, true));
  EXPECT_FALSE(HasRoom(9, 8, 2, true));
}

}  // namespace
}  // namespace quire
