// SPDX-License-Identifier: Apache-2.0

#include "base/hex.h"

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

}  // namespace
}  // namespace quire
