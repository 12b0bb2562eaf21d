// SPDX-License-Identifier: Apache-2.0

#include "base/error_text.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(ErrorTextTest, OnlyATextThatIsNotPrintableIsEscaped) {
  EXPECT_EQ(PrintableText("a \"b\" \\"), "a \"b\" \\");
  EXPECT_EQ(PrintableText("bad \xff\n"), "bad \\xff\\n");
}

TEST(ErrorTextTest, AShortenedTextEndsWithPoints) {
  EXPECT_EQ(ShortenedText("abcdef", 6), "abcdef");
  EXPECT_EQ(ShortenedText("abcdefg", 6), "abc...");
  EXPECT_EQ(ShortenedText("abcd", 3), "...");
}

}  // namespace
}  // namespace quire
