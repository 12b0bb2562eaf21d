// SPDX-License-Identifier: Apache-2.0

#include "base/fingerprint.h"

#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
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

TensorDigests DigestsOf(std::initializer_list<std::pair<std::string, std::string>> tensors) {
  TensorDigests digests("config");
  for (const auto& [name, bytes] : tensors) digests.Add(name, "F32", bytes);
  return digests;
}

TEST(TensorDigestsTest, OrderOfTensorsDoesNotCount) {
  const std::string one = DigestsOf({{"a", "xy"}, {"b", "z"}}).fingerprint();
  EXPECT_EQ(DigestsOf({{"b", "z"}, {"a", "xy"}}).fingerprint(), one);
  EXPECT_NE(DigestsOf({{"a", "x"}, {"b", "yz"}}).fingerprint(), one);
  EXPECT_NE(DigestsOf({{"a", "z"}, {"b", "xy"}}).fingerprint(), one) << "names count";
  EXPECT_NE(DigestsOf({{"a", "xy"}}).fingerprint(), one);
  EXPECT_NE(TensorDigests("other").fingerprint(), TensorDigests("config").fingerprint());
}

TEST(TensorDigestsTest, RanksTogetherHaveTheFingerprintOfOneProcess) {
  TensorDigests first = DigestsOf({{"a", "xy"}, {"c", "w"}}), second = DigestsOf({{"b", "z"}});
  first.Expect("b");
  for (const char* name : {"a", "c"}) second.Expect(name);
  EXPECT_EQ(first.fingerprint(), "") << "the digest of b is missing";
  ASSERT_TRUE(first.Join(second).ok());
  EXPECT_EQ(first.fingerprint(), DigestsOf({{"a", "xy"}, {"b", "z"}, {"c", "w"}}).fingerprint());
}

TEST(TensorDigestsTest, RanksWithOtherNumbersAreRefused) {
  TensorDigests first = DigestsOf({{"a", "xy"}});
  EXPECT_EQ(first.Join(TensorDigests("other")).message(),
            "the models of two ranks differ: one is \"config\", the other \"other\"");
  const absl::Status other_bytes = first.Join(DigestsOf({{"b", "z"}, {"a", "xx"}}));
  EXPECT_THAT(std::string(other_bytes.message()), testing::StartsWith("tensor a differs between two ranks: "));
  EXPECT_EQ(first.fingerprint(), DigestsOf({{"a", "xy"}}).fingerprint()) << "nothing is added by a failure";
}

}  // namespace
}  // namespace quire
