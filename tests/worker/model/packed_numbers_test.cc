// SPDX-License-Identifier: Apache-2.0

#include "worker/model/packed_numbers.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// The words 0x76543210 and 0xfedcba98.
std::string TwoWords() {
  return std::string("\x10\x32\x54\x76\x98\xba\xdc\xfe", 8);
}

TEST(PackedNumbersTest, WordsOfPackQuantizedHoldColumnsOfARowAndRowsOfZeroPoints) {
  std::vector<int8_t> values(10);
  UnpackRows(TwoWords(), /*bits=*/4, 2, 5, values.data());
  EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4, 8, 9, 10, 11, 12));
  std::vector<uint8_t> zeros(9);
  UnpackZeroPoints(TwoWords(), /*bits=*/4, 9, 1, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(PackedNumbersTest, WordsOfGptqHoldColumnsOfARowAndRowsOfZeroPoints) {
  std::vector<int8_t> values(16);  // Two rows of eight columns.
  UnpackGptq(TwoWords(), /*bits=*/4, 2, 8, values.data());
  EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  std::vector<uint8_t> zeros(16);  // Two groups of eight rows.
  UnpackGptqZeros(TwoWords(), /*bits=*/4, 8, 2, /*stored_less=*/0, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

// The zero points 0, 3, 1, 1, 1, 1, 1, 1 are the word 0x11111130. Less 0x11111111 they are 0x0000001f.
TEST(PackedNumbersTest, AZeroPointOf0ThatBorrowedFromItsNeighbourIsRestored) {
  std::vector<uint8_t> zeros(8);
  UnpackGptqZeros(std::string("\x1f\x00\x00\x00", 4), /*bits=*/4, 8, 1, /*stored_less=*/1, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0, 3, 1, 1, 1, 1, 1, 1));
}

TEST(PackedNumbersTest, WordsOf8BitsHoldFourNumbersInTheSameOrders) {
  std::vector<int8_t> values(6);
  UnpackRows(TwoWords(), /*bits=*/8, 2, 3, values.data());
  EXPECT_THAT(values, ElementsAre(0x10, 0x32, 0x54, int8_t(0x98), int8_t(0xba), int8_t(0xdc)));
  std::vector<uint8_t> zeros(5);
  UnpackZeroPoints(TwoWords(), /*bits=*/8, 5, 1, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0x10, 0x32, 0x54, 0x76, 0x98));
  values.resize(8);  // Two rows of four columns.
  UnpackGptq(TwoWords(), /*bits=*/8, 2, 4, values.data());
  EXPECT_THAT(values, ElementsAre(0x10, 0x32, 0x54, 0x76, int8_t(0x98), int8_t(0xba), int8_t(0xdc), int8_t(0xfe)));
  // The zero points 0, 0x33, 0x55, 0x77 less 1 each: the first one has borrowed from the second one.
  zeros.resize(4);
  UnpackGptqZeros(std::string("\xff\x31\x54\x76", 4), /*bits=*/8, 4, 1, /*stored_less=*/1, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(0, 0x33, 0x55, 0x77));
}

TEST(PackedNumbersTest, WordsOfAwqHoldOutputsInAnOrderOfTheirOwn) {
  const int order[] = {0, 4, 1, 5, 2, 6, 3, 7};  // The place of output i in a word.
  std::vector<int8_t> values(16);                // Eight rows of two columns.
  UnpackAwq(TwoWords(), 8, 2, values.data());
  for (int row = 0; row < 8; ++row) {
    EXPECT_EQ(values[2 * row], order[row]);
    EXPECT_EQ(values[2 * row + 1], order[row] + 8);
  }
  std::vector<uint8_t> zeros(8);
  UnpackAwqZeros(TwoWords(), 8, 1, zeros.data());
  EXPECT_THAT(zeros, ElementsAreArray(order));
}

}  // namespace
}  // namespace quire
