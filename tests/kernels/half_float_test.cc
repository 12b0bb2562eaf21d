// SPDX-License-Identifier: Apache-2.0

#include "kernels/half_float.h"

#include <cmath>

#include "kernels/cpu/table/kernel_table.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

TEST(HalfFloatTest, EveryValueSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 b = {uint16_t(bits)};
    const Float16 h = {uint16_t(bits)};
    EXPECT_TRUE(std::isnan(ToFloat(b)) || ToBFloat16(ToFloat(b)).bits == bits) << bits;
    EXPECT_TRUE(std::isnan(ToFloat(h)) || ToFloat16(ToFloat(h)).bits == bits) << bits;
  }
}

TEST(HalfFloatTest, Float16HasTheValuesOfIeee754) {
  EXPECT_EQ(ToFloat(Float16{0x3c00}), 1.0f);
  EXPECT_EQ(ToFloat(Float16{0xc100}), -2.5f);
  EXPECT_EQ(ToFloat(Float16{0x7bff}), 65504.0f);
  EXPECT_EQ(ToFloat(Float16{0x0400}), 0x1p-14f);
  EXPECT_EQ(ToFloat(Float16{0x0001}), 0x1p-24f);
  EXPECT_EQ(ToFloat(Float16{0xfc00}), -INFINITY);
  EXPECT_TRUE(std::isnan(ToFloat(Float16{0x7e01})));
}

TEST(HalfFloatTest, RoundsToNearestEven) {
  EXPECT_EQ(ToBFloat16(BitsToFloat(0x3f808000)).bits, 0x3f80);  // Halfway: rounds down to even.
  EXPECT_EQ(ToBFloat16(BitsToFloat(0x3f818000)).bits, 0x3f82);  // Halfway: rounds up to even.
  EXPECT_EQ(ToBFloat16(BitsToFloat(0x3f808001)).bits, 0x3f81);
  EXPECT_EQ(ToBFloat16(BitsToFloat(0x7f7fffff)).bits, 0x7f80);  // Too large: rounds to infinity.
  EXPECT_EQ(ToFloat16(1 + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(ToFloat16(1 + 3 * 0x1p-11f).bits, 0x3c02);
  EXPECT_EQ(ToFloat16(65519.99f).bits, 0x7bff);
  EXPECT_EQ(ToFloat16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToFloat16(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(ToFloat16(-0x1.8p-25f).bits, 0x8001);
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(NAN))));
  EXPECT_TRUE(std::isnan(ToFloat(ToFloat16(NAN))));
}

using ConvertTest = CpuBackendTest;

TEST_P(ConvertTest, VectorsRoundLikeScalars) {
  const cpu::KernelTable& kernels = cpu::KernelsFor(GetParam());
  std::mt19937 bits(1);
  std::vector<float> values;
  for (int i = 0; i < 100'003; ++i) values.push_back(BitsToFloat(uint32_t(bits())));
  for (const float value : {0.0f, -0.0f, INFINITY, -INFINITY, 65504.0f, 65519.99f, 65520.0f, 0x1p-24f, 0x1p-25f}) {
    values.push_back(value);
  }
  for (const DataType type : kAllTypes) {
    std::vector<char> actual(values.size() * SizeOf(type));
    kernels.convert[int(type)](values.data(), actual.data(), int(values.size()));
    EXPECT_EQ(actual, Encoded(values, type)) << Name(type);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ConvertTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
