// SPDX-License-Identifier: Apache-2.0

#include "base/num_blocks.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(NumBlocksTest, ABlockThatIsPartlyFilledCounts) {
  EXPECT_EQ(NumBlocksFor(0, 4), 0);
  EXPECT_EQ(NumBlocksFor(1, 4), 1);
  EXPECT_EQ(NumBlocksFor(4, 4), 1);
  EXPECT_EQ(NumBlocksFor(5, 4), 2);
  EXPECT_EQ(NumBlocksFor(2147483647, 16), 134217728);
}

}  // namespace
}  // namespace quire
