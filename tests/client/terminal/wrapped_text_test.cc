// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/wrapped_text.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(WrapTextTest, LinesBreakBetweenWordsAndFitTheColumns) {
  EXPECT_EQ(WrapText("one two three four", 9), "one two\nthree\nfour");
  EXPECT_EQ(WrapText("one two", 7), "one two");
}

TEST(WrapTextTest, AWordThatIsTooLongHasALineOfItsOwn) {
  EXPECT_EQ(WrapText("a extraordinary word", 6), "a\nextraordinary\nword");
}

TEST(WrapTextTest, LineBreaksAndExamplesStay) {
  EXPECT_EQ(WrapText("one two\n\nthree", 5), "one\ntwo\n\nthree");
  EXPECT_EQ(WrapText("Run:\n  quirectl  status --all", 5), "Run:\n  quirectl  status --all");
}

}  // namespace
}  // namespace quire
