// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE software_tiles_test
#define QUIRE_TILE_HEADER "tests/kernels/software_tiles.h"
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/isa/amx_tile.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

bool HasBFloat16Pairs() {
  const std::vector<cpu::Isa> isas = cpu::SupportedIsas();
  return std::find(isas.begin(), isas.end(), cpu::Isa::kAvx512Bf16) != isas.end();
}

}  // namespace

// Apart from tiles, the kernels for AMX need AVX512-BF16.
std::vector<cpu::Isa> TestedIsas() {
  return HasBFloat16Pairs() ? std::vector<cpu::Isa>{cpu::Isa::kAmx} : std::vector<cpu::Isa>{};
}

namespace cpu::software_tiles_test {
namespace {

// Shapes for sums [rows, columns] in tile 0, a [rows, depth] in tile 1 and b [depth, columns] in tile 2, in elements of
// 4 bytes.
class SoftwareTilesTest : public testing::Test {
 protected:
  static void Configure(int rows, int depth, int columns) {
    TileShapes shapes;
    shapes.Set(0, rows, 4 * columns);
    shapes.Set(1, rows, 4 * depth);
    shapes.Set(2, depth, 4 * columns);
    ConfigureTiles(shapes);
  }
  // Returns sum + a * b for one element of the sums, where a and b are pairs of consecutive k.
  static float Product(std::vector<float> a, std::vector<float> b, float sum) {
    Configure(1, int(a.size()) / 2, 1);
    std::vector<BFloat16> left, right;
    for (const float value : a) left.push_back(ToBFloat16(value));
    for (const float value : b) right.push_back(ToBFloat16(value));
    LoadTile<0>(&sum, sizeof(sum));
    LoadTile<1>(left.data(), int64_t(2 * left.size()));
    LoadTile<2>(right.data(), sizeof(float));
    MultiplyTiles<0, 1, 2>();
    StoreTile<0>(&sum, sizeof(sum));
    return sum;
  }
};

TEST_F(SoftwareTilesTest, LoadsAndStoresMoveTheRowsOfTheShape) {
  Configure(2, 1, 3);
  const int32_t from[] = {1, 2, 3, 4, 5, 6, 7, 8};
  int32_t to[] = {0, 0, 0, 0, 0, 0, 0, 0};
  LoadTile<0>(from, 4 * sizeof(int32_t));
  StoreTile<0>(to, 5 * sizeof(int32_t));
  EXPECT_EQ(std::vector<int32_t>(std::begin(to), std::end(to)), std::vector<int32_t>({1, 2, 3, 0, 0, 5, 6, 7}));
  ZeroTile<0>();
  StoreTile<0>(to, 5 * sizeof(int32_t));
  EXPECT_EQ(std::vector<int32_t>(std::begin(to), std::end(to)), std::vector<int32_t>({0, 0, 0, 0, 0, 0, 0, 0}));
}

// 2^24 + 1 rounds to 2^24, so the result shows which numbers were added first.
TEST_F(SoftwareTilesTest, EvenAndOddColumnsAreSummedApart) {
  EXPECT_EQ(Product({0x1p24f, 1, 1, 1}, {1, 1, 1, 1}, 0), 0x1p24f + 2);
  EXPECT_EQ(Product({0x1p24f, 1, 1, 0}, {1, 1, 1, 1}, 0), 0x1p24f);
  // The products come before the sum.
  EXPECT_EQ(Product({1, 1}, {1, 1}, 0x1p24f), 0x1p24f + 2);
}

TEST_F(SoftwareTilesTest, SubnormalNumbersAreZeros) {
  EXPECT_EQ(Product({0x1p-127f, 0}, {0x1p100f, 0}, 0), 0);
  EXPECT_EQ(Product({0x1p-126f, 0}, {0x1p100f, 0}, 0), 0x1p-26f);
  EXPECT_EQ(Product({0x1p-70f, 0}, {0x1p-57f, 0}, 0), 0);
  EXPECT_EQ(Product({0x1p-70f, 0}, {0x1p-56f, 0}, 0), 0x1p-126f);
  EXPECT_EQ(Product({0, 0}, {0, 0}, 0x1p-127f), 0);
  EXPECT_EQ(Product({0, 0}, {0, 0}, 0x1p-126f), 0x1p-126f);
  // The sum of two normal numbers.
  EXPECT_EQ(Product({0x1.8p-126f, 0}, {1, 0}, -0x1p-126f), 0);
  EXPECT_TRUE(std::signbit(FlushedFma(-0x1p-70f, 0x1p-70f, 0)));
}

TEST_F(SoftwareTilesTest, RandomProductsAreNearFloat64) {
  Random random(1);
  for (const auto& [rows, depth, columns] : {std::tuple{16, 16, 16}, std::tuple{5, 16, 3}, std::tuple{1, 7, 16}}) {
    Configure(rows, depth, columns);
    const std::vector<float> a = Rounded(random.Normals(size_t(rows) * depth * 2), DataType::kBFloat16);
    const std::vector<float> b = Rounded(random.Normals(size_t(columns) * depth * 2), DataType::kBFloat16);
    std::vector<float> sums = random.Normals(size_t(rows) * columns);
    std::vector<double> expected = Doubles(sums);
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < columns; ++n) {
        for (int k = 0; k < 2 * depth; ++k) {
          expected[m * columns + n] += double{a[m * 2 * depth + k]} * b[(k / 2 * columns + n) * 2 + k % 2];
        }
      }
    }
    LoadTile<0>(sums.data(), columns * 4);
    LoadTile<1>(Encoded(a, DataType::kBFloat16).data(), depth * 4);
    LoadTile<2>(Encoded(b, DataType::kBFloat16).data(), columns * 4);
    MultiplyTiles<0, 1, 2>();
    StoreTile<0>(sums.data(), columns * 4);
    EXPECT_LT(RelativeError(sums, expected), 1e-6) << rows << " x " << depth << " x " << columns;
  }
}

// Returns the first of the sums + a * b.
__attribute__((target("avx512f,avx512bf16"))) float DotPairs(const float* sums, const BFloat16* a, const BFloat16* b) {
  const __m512bh left = reinterpret_cast<__m512bh>(_mm512_loadu_si512(a));
  const __m512bh right = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
  return _mm512_cvtss_f32(_mm512_dpbf16_ps(_mm512_loadu_ps(sums), left, right));
}

// VDPBF16PS treats subnormal numbers in the same way. It adds the product of the odd elements and then of the even
// ones.
TEST_F(SoftwareTilesTest, RoundsLikeTheVectorInstruction) {
  if (!HasBFloat16Pairs()) GTEST_SKIP() << "Has no AVX512-BF16.";
  Random random(2);
  for (int i = 0; i < 200000; ++i) {
    // Small numbers, whose products and sums are often near the smallest normal number.
    const int exponent = i % 3 == 0 ? random.Int(-130, 127) : random.Int(-66, -60);
    const auto small = [&](int power) { return std::ldexp(float(random.Int(-255, 255)), power); };
    BFloat16 a[32] = {}, b[32] = {};
    float sums[16] = {};
    sums[0] = std::ldexp(float(random.Int(-0xffffff, 0xffffff)), i % 2 == 0 ? -149 : random.Int(-149, 100));
    for (int j = 0; j < 2; ++j) {
      a[j] = ToBFloat16(small(exponent - 7));
      b[j] = ToBFloat16(small(-126 - exponent + random.Int(-10, 3)));
    }
    float expected = WithoutSubnormal(sums[0]);
    for (const int j : {1, 0}) {
      expected = FlushedFma(WithoutSubnormal(ToFloat(a[j])), WithoutSubnormal(ToFloat(b[j])), expected);
    }
    ASSERT_EQ(Bits({DotPairs(sums, a, b)}), Bits({expected}))
        << i << ": " << ToFloat(a[0]) << " * " << ToFloat(b[0]) << " + " << ToFloat(a[1]) << " * " << ToFloat(b[1]);
  }
}

TEST_F(SoftwareTilesTest, BytesHaveTheSignOfTheInstruction) {
  Configure(1, 1, 1);
  const uint8_t a[] = {255, 1, 0, 0}, b[] = {2, 254, 0, 0};
  const auto product = [&](auto multiply, int32_t sum) {
    LoadTile<0>(&sum, 4);
    LoadTile<1>(a, 4);
    LoadTile<2>(b, 4);
    multiply();
    StoreTile<0>(&sum, 4);
    return sum;
  };
  EXPECT_EQ(product(MultiplySigned<0, 1, 2>, 5), 5 - 2 - 2);
  EXPECT_EQ(product(MultiplySignedByUnsigned<0, 1, 2>, 5), 5 - 2 + 254);
  EXPECT_EQ(product(MultiplyUnsignedBySigned<0, 1, 2>, 5), 5 + 510 - 2);
  // Sums wrap.
  EXPECT_EQ(product(MultiplySigned<0, 1, 2>, INT32_MIN), INT32_MAX - 3);
}

using SoftwareTilesDeathTest = SoftwareTilesTest;

TEST_F(SoftwareTilesDeathTest, WhatAProcessorRefusesEndsTheProgram) {
  Configure(2, 3, 4);
  EXPECT_DEATH((MultiplyTiles<0, 2, 1>()), "the sums have the rows of a");
  EXPECT_DEATH((MultiplyTiles<0, 1, 1>()), "different tiles");
  EXPECT_DEATH(ZeroTile<3>(), "no shape");
  TileShapes shapes;
  shapes.Set(0, 17, 64);
  EXPECT_DEATH(ConfigureTiles(shapes), "at most 16 rows");
  ReleaseTiles();
  EXPECT_DEATH(ZeroTile<0>(), "no shape");
}

}  // namespace
}  // namespace cpu::software_tiles_test
}  // namespace quire
