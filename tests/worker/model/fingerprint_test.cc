// SPDX-License-Identifier: Apache-2.0

#include "worker/model/fingerprint.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

std::string FingerprintOf(std::initializer_list<std::string> parts) {
  Fingerprint fingerprint;
  for (const std::string& part : parts) fingerprint.Add(part);
  return fingerprint.Hex();
}

TEST(FingerprintTest, IsThirtyTwoHexadecimalDigits) {
  const std::string hex = FingerprintOf({"abc"});
  EXPECT_EQ(hex.size(), 32u);
  EXPECT_EQ(hex.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(FingerprintTest, SameBytesGiveTheSameDigits) {
  EXPECT_EQ(FingerprintOf({"weights", "more"}), FingerprintOf({"weights", "more"}));
}

TEST(FingerprintTest, BoundariesBetweenPartsCount) {
  EXPECT_NE(FingerprintOf({"ab", "c"}), FingerprintOf({"a", "bc"}));
  EXPECT_NE(FingerprintOf({"abc"}), FingerprintOf({"abc", ""}));
}

TEST(FingerprintTest, EveryBitAndEveryLengthCounts) {
  std::set<std::string> seen;
  const std::string zeros(100, '\0');
  for (size_t length = 0; length <= zeros.size(); ++length) {
    EXPECT_TRUE(seen.insert(FingerprintOf({zeros.substr(0, length)})).second) << length;
  }
  for (size_t bit = 0; bit < zeros.size() * 8; ++bit) {
    std::string flipped = zeros;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_TRUE(seen.insert(FingerprintOf({flipped})).second) << "bit " << bit;
  }
}

TEST(FingerprintTest, SwappedWordsCount) {
  const std::string a(8, 'a');
  const std::string b(8, 'b');
  EXPECT_NE(FingerprintOf({a + b}), FingerprintOf({b + a}));
  const std::string row = a + a + a + a;
  EXPECT_NE(FingerprintOf({row + b}), FingerprintOf({b + row}));
}

}  // namespace
}  // namespace quire
