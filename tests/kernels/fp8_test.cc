// SPDX-License-Identifier: Apache-2.0

#include "kernels/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quire {
namespace {

TEST(Fp8Test, NumbersAreThoseOfTheDefinition) {
  EXPECT_EQ(Fp8ToFloat(0x00), 0);
  EXPECT_EQ(Fp8ToFloat(0x01), std::ldexp(1.0f, -9)) << "the least positive number";
  EXPECT_EQ(Fp8ToFloat(0x07), std::ldexp(7.0f, -9)) << "the largest subnormal number";
  EXPECT_EQ(Fp8ToFloat(0x08), std::ldexp(1.0f, -6)) << "the least normal number";
  EXPECT_EQ(Fp8ToFloat(0x38), 1);
  EXPECT_EQ(Fp8ToFloat(0x3c), 1.5);
  EXPECT_EQ(Fp8ToFloat(0x7e), 448) << "the largest number";
  EXPECT_TRUE(std::isnan(Fp8ToFloat(0x7f)));
  EXPECT_TRUE(std::isnan(Fp8ToFloat(0xff)));
  for (int i = 1; i < 127; ++i) {
    EXPECT_EQ(Fp8ToFloat(i | 128), -Fp8ToFloat(i)) << i;
    EXPECT_LT(Fp8ToFloat(i - 1), Fp8ToFloat(i)) << i;
  }
}

// Every number, the middle of each two neighbours, and what is next to the middle.
TEST(Fp8Test, RoundingGivesTheNearestNumberAndTheEvenOneOfTwo) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int bits = 0; bits < 126; ++bits) {
    const float low = Fp8ToFloat(bits), high = Fp8ToFloat(bits + 1), middle = (low + high) / 2;
    EXPECT_EQ(FloatToFp8(low), bits);
    EXPECT_EQ(FloatToFp8(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(FloatToFp8(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(FloatToFp8(std::nextafter(middle, infinity)), bits + 1);
    EXPECT_EQ(FloatToFp8(-high), bits + 1 + 128);
  }
  for (const float large : {449.0f, 1e30f, infinity}) {
    EXPECT_EQ(FloatToFp8(large), 0x7e) << large;
    EXPECT_EQ(FloatToFp8(-large), 0xfe) << large;
  }
  EXPECT_EQ(FloatToFp8(-0.0f), 0x80);
  EXPECT_TRUE(std::isnan(Fp8ToFloat(FloatToFp8(NAN))));
}

}  // namespace
}  // namespace quire
