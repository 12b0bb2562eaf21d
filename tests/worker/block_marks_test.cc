#include "worker/block_marks.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(BlockMarksTest, AMarkHoldsItsOwnerUntilClear) {
  BlockMarks marks(4);
  EXPECT_FALSE(marks.IsMarked(2));
  EXPECT_TRUE(marks.Mark(2, 7));
  EXPECT_FALSE(marks.Mark(2, 8));
  EXPECT_EQ(marks.Owner(2), 7u);
  marks.Clear();
  EXPECT_FALSE(marks.IsMarked(2));
  EXPECT_TRUE(marks.Mark(2, 8));
}

TEST(BlockMarksTest, MarksAreForgottenWhenTheGenerationsBeginAnew) {
  MarkSet<uint8_t> marks(2);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(marks.IsMarked(0)) << i;
    EXPECT_FALSE(marks.IsMarked(1)) << i;
    // Block 1 is marked once in 256 generations, so that its old mark meets the same generation again.
    EXPECT_TRUE(marks.Mark(0)) << i;
    if (i % 255 == 0) EXPECT_TRUE(marks.Mark(1)) << i;
    marks.Clear();
  }
}

}  // namespace
}  // namespace quire
