// SPDX-License-Identifier: Apache-2.0

#include "security/digest.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(ParseHexTest, TwoDigitsOfEitherCaseAreAByte) {
  EXPECT_EQ(ParseHex("00fFaB10"), std::string("\0\xff\xab\x10", 4));
  EXPECT_EQ(ParseHex(""), "");
}

TEST(ParseHexTest, AnythingElseIsRefused) {
  for (const char* text : {"0", "000", "0g", "g0", "0x", " 00", "00 ", "0-", "@0", "`0", ":0", "/0"}) {
    EXPECT_EQ(ParseHex(text), std::nullopt) << text;
  }
}

// The digest of "abc" is the example in FIPS 180-4.
TEST(ParseSha256Test, OnlyADigestOfTheRightLengthIsRead) {
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(ParseSha256(abc), Sha256("abc"));
  EXPECT_EQ(ParseSha256(abc.substr(2)), std::nullopt);
  EXPECT_EQ(ParseSha256(abc + "00"), std::nullopt);
  EXPECT_EQ(ParseSha256("x" + abc.substr(1)), std::nullopt);
}

}  // namespace
}  // namespace quire
