// SPDX-License-Identifier: Apache-2.0

#include "worker/model/quantize.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/half_float.h"

namespace quire {
namespace {

using testing::ElementsAre;

TEST(QuantizeTest, TheLargestMagnitudeOfARowBecomes127AndTiesRoundToEven) {
  const std::vector<float> values = {12.7f, -12.7f, 0.25f, 0.33f, 0.0f, 254, 1, 3, 5, -7, 0, 0, 0, 0, 0};
  const QuantizedMatrix matrix =
      QuantizeToInt8({.data = values.data(), .rows = 3, .cols = 5, .type = DataType::kFloat32});
  EXPECT_THAT(std::vector<int8_t>(matrix.values.begin(), matrix.values.begin() + 4), ElementsAre(127, -127, 2, 3));
  // 1 / 2, 3 / 2, 5 / 2 and -7 / 2.
  EXPECT_THAT(std::vector<int8_t>(matrix.values.begin() + 5, matrix.values.begin() + 10),
              ElementsAre(127, 0, 2, 2, -4));
  EXPECT_THAT(std::vector<int8_t>(matrix.values.begin() + 10, matrix.values.end()), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(matrix.scales, ElementsAre(12.7f / 127, 2, 0));
}

TEST(QuantizeTest, EveryTypeOfFileIsRead) {
  const BFloat16 bfloats[] = {ToBFloat16(-2), ToBFloat16(1)};
  const Float16 halves[] = {ToFloat16(-2), ToFloat16(1)};
  for (const MatrixView& view :
       {MatrixView{bfloats, 1, 2, DataType::kBFloat16}, MatrixView{halves, 1, 2, DataType::kFloat16}}) {
    const QuantizedMatrix matrix = QuantizeToInt8(view);
    EXPECT_THAT(matrix.values, ElementsAre(-127, 64)) << Name(view.type);
    EXPECT_THAT(matrix.scales, ElementsAre(2 / 127.0f)) << Name(view.type);
  }
}

TEST(QuantizeTest, TinyRowsBecomeZerosWithoutAnInfiniteFactor) {
  const float values[] = {1e-38f, -1e-40f};
  const QuantizedMatrix matrix = QuantizeToInt8({.data = values, .rows = 1, .cols = 2, .type = DataType::kFloat32});
  EXPECT_THAT(matrix.values, ElementsAre(0, 0));
  EXPECT_THAT(matrix.scales, ElementsAre(0));
}

TEST(QuantizeTest, FourBitsHaveAScaleAndAZeroPointForEvery128Columns) {
  std::vector<float> values(130, 0);
  values[0] = -2;
  values[1] = 13;
  values[2] = 0.4f;
  values[128] = 1.5f;
  values[129] = 0.25f;  // 2.5 rounds to even.
  const QuantizedMatrix matrix =
      QuantizeToInt4({.data = values.data(), .rows = 1, .cols = 130, .type = DataType::kFloat32});
  EXPECT_EQ(matrix.group, 128);
  EXPECT_THAT(matrix.scales, ElementsAre(1, 0.1f));
  EXPECT_THAT(matrix.zeros, ElementsAre(2, 0));
  EXPECT_THAT(std::vector<int8_t>(matrix.values.begin(), matrix.values.begin() + 4), ElementsAre(0, 15, 2, 2));
  EXPECT_THAT(std::vector<int8_t>(matrix.values.begin() + 128, matrix.values.end()), ElementsAre(15, 2));
}

TEST(QuantizeTest, AGroupOfZerosHasTheScaleZeroAndTheLargestNumbersStayFinite) {
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> values = {0, 0, -largest, largest};
  const QuantizedMatrix matrix =
      QuantizeToInt4({.data = values.data(), .rows = 2, .cols = 2, .type = DataType::kFloat32});
  EXPECT_EQ(matrix.scales[0], 0);
  EXPECT_THAT(std::vector<int8_t>(matrix.values.begin(), matrix.values.begin() + 2), ElementsAre(0, 0));
  EXPECT_TRUE(std::isfinite(matrix.scales[1]));
  EXPECT_GT(matrix.values[3], matrix.values[2]);
}

}  // namespace
}  // namespace quire
