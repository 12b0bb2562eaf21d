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
    EXPECT_TRUE(marks.Mark(0)) << i;
    // Generations are 1 to 255: a mark of block 1 meets its own generation again after 255 times.
    if (i % 255 == 0) {
      EXPECT_TRUE(marks.Mark(1)) << i;
    }
    marks.Clear();
  }
}

}  // namespace
}  // namespace quire
