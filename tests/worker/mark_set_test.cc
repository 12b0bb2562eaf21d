// SPDX-License-Identifier: Apache-2.0

#include "worker/mark_set.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(MarkSetTest, AMarkHoldsItsOwnerUntilClear) {
  MarkSet marks(4);
  EXPECT_FALSE(marks.IsMarked(2));
  EXPECT_TRUE(marks.Mark(2, 7));
  EXPECT_FALSE(marks.Mark(2, 8));
  EXPECT_EQ(marks.Owner(2), 7u);
  marks.Clear();
  EXPECT_FALSE(marks.IsMarked(2));
  EXPECT_TRUE(marks.Mark(2, 8));
}

TEST(MarkSetTest, MarksAreForgottenWhenTheGenerationsBeginAnew) {
  MarkSet marks(2);
  for (int i = 0; i < 200'000; ++i) {
    EXPECT_FALSE(marks.IsMarked(0)) << i;
    EXPECT_FALSE(marks.IsMarked(1)) << i;
    EXPECT_TRUE(marks.Mark(0)) << i;
    // Generations are 1 to 65535, so the generation of an old mark comes again after 65535 calls of Clear.
    if (i % 65535 == 0) {
      EXPECT_TRUE(marks.Mark(1)) << i;
    }
    marks.Clear();
  }
}

}  // namespace
}  // namespace quire
