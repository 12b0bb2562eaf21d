// SPDX-License-Identifier: Apache-2.0

#include "base/number_text.h"

#include <limits>
#include <string_view>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(HexTest, OnlyHexadecimalDigitsHaveAValue) {
  constexpr std::string_view kLower = "0123456789abcdef";
  constexpr std::string_view kUpper = "0123456789ABCDEF";
  for (int code = std::numeric_limits<char>::min(); code <= std::numeric_limits<char>::max(); ++code) {
    const char c = static_cast<char>(code);
    const size_t lower = kLower.find(c);
    const size_t value = lower == kLower.npos ? kUpper.find(c) : lower;
    EXPECT_EQ(HexValue(c), value == kLower.npos ? -1 : static_cast<int>(value)) << code;
  }
}

TEST(LimitTextTest, TheLimitsOfFloat32HaveWords) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_EQ(LimitText(kLargest), "the largest float32 number (about 3.4e38)");
  EXPECT_EQ(LimitText(-kLargest), "the lowest float32 number (about -3.4e38)");
}

TEST(LimitTextTest, WholeNumbersThatAreNotVeryLargeHaveAllDigits) {
  EXPECT_EQ(LimitText(1e6), "1000000");
  EXPECT_EQ(LimitText(std::numeric_limits<int>::max()), "2147483647");
  EXPECT_EQ(LimitText(-1), "-1");
  EXPECT_EQ(LimitText(0), "0");
  EXPECT_EQ(LimitText(1e12), "1e12");
}

TEST(LimitTextTest, FractionsThatAreNotVerySmallHaveNoExponent) {
  EXPECT_EQ(LimitText(1e-12), "1e-12");
  EXPECT_EQ(LimitText(0.01f), "0.01");
  EXPECT_EQ(LimitText(-1e-6), "-0.000001");
  EXPECT_EQ(LimitText(1.5), "1.5");
}

}  // namespace
}  // namespace quire
