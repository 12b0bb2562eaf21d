// SPDX-License-Identifier: Apache-2.0

// Products of rounded rows by matrices of int8 on a device. They have the bits of the scalar formula, as the products
// of a CPU do.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/round_rows.h"
#include "kernels/cuda/rounded_product.h"
#include "kernels/cuda/rounded_products.h"
#include "kernels/reference/quantized.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/quantized_cases.h"
#include "tests/kernels/cuda/rounded_multiply.h"

namespace quire::cuda {
namespace {

constexpr DataType kElements[] = {DataType::kBFloat16, DataType::kFloat16};

class RoundedProductTest : public DeviceTest {
 protected:
  // With few bytes for sums and few tokens at once, the library multiplies parts of 16 rows. Our kernel takes more
  // tokens than by default, so that the one for the most tokens is tested.
  RoundedProducts Products(DataType element) {
    return RoundedProducts(device(), device()->FindKernels(element, 128, 16), element, /*sum_bytes=*/1,
                           /*most_tokens_at_once=*/70, /*most_few_tokens=*/64);
  }

  std::vector<float> Multiply(const std::vector<float>& x, const QuantizedCase& w, DataType element, DataType y_type,
                              const std::vector<float>* initial = nullptr) {
    return MultiplyRounded(device(), Products(element), x, w, element, y_type, initial);
  }
};

std::vector<float> RandomRows(int num_tokens, int cols, DataType element, uint64_t seed, float scale = 1) {
  Random random(seed);
  return Rounded(random.Normals(size_t(num_tokens) * cols, scale), element);
}

std::vector<float> Formula(const std::vector<float>& x, const QuantizedCase& w) {
  return reference::QuantizedLinear(x, w.values, w.scales, w.cols);
}

TEST_F(RoundedProductTest, RowsAreRoundedLikeThoseOfACpu) {
  constexpr int kRows = 5, kCols = 2200, kPaddedCols = 2304;
  for (const DataType element : kElements) {
    const std::vector<float> x = RandomRows(kRows, kCols, element, 3);
    DeviceArray<char> device_x(device(), Encoded(x, element));
    DeviceArray<int8_t> y(device(), std::vector<int8_t>(kRows * kPaddedCols, 55));
    DeviceArray<float> scales(device(), kRows);
    device()->Launch(device()->FindKernels(element, 128, 16)->rounded_int8.round_rows,
                     RoundRowsArgs{.x = reinterpret_cast<const uint16_t*>(device_x.data()),
                                   .y = y.data(),
                                   .scales = scales.data(),
                                   .num_rows = kRows,
                                   .dim = kCols,
                                   .padded_dim = kPaddedCols},
                     /*num_blocks=*/2);
    const std::vector<int8_t> numbers = y.Download();
    const std::vector<float> row_scales = scales.Download();
    for (int row = 0; row < kRows; ++row) {
      reference::QuantizedRow expected = reference::Quantize(&x[row * kCols], kCols);
      expected.values.resize(kPaddedCols);
      EXPECT_EQ(row_scales[row], expected.scale);
      const auto begin = numbers.begin() + row * kPaddedCols;
      EXPECT_EQ(std::vector<int>(begin, begin + kPaddedCols), expected.values) << "row " << row;
    }
  }
}

// The kernels take any number of tokens, in blocks. The last block of tokens is not full.
TEST_F(RoundedProductTest, TokensInSeveralBlocksHaveTheSameBits) {
  constexpr int kRows = 24, kCols = 128, kTokens = 131;
  constexpr DataType kElement = DataType::kBFloat16;
  const QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, 4);
  const QuantizedMatrixView view = w.View();
  const auto packed = ByteCudaMatrix::Pack(device(), &view, 1);
  const std::vector<float> x = RandomRows(kTokens, kCols, kElement, 4);
  std::vector<int8_t> numbers;
  std::vector<float> scales;
  for (int token = 0; token < kTokens; ++token) {
    const reference::QuantizedRow row = reference::Quantize(&x[token * kCols], kCols);
    numbers.insert(numbers.end(), row.values.begin(), row.values.end());
    scales.push_back(row.scale);
  }
  DeviceArray<int8_t> device_x(device(), numbers);
  DeviceArray<float> x_scales(device(), scales);
  const RoundedProductKernels& kernels = device()->FindKernels(kElement, 128, 16)->rounded_int8;
  for (int i = 0; i < 4; ++i) {
    DeviceArray<float> y(device(), kTokens * kRows);
    device()->Launch(kernels.products[i],
                     RoundedProductArgs{.x = device_x.data(),
                                        .x_scales = x_scales.data(),
                                        .w = packed->values(),
                                        .w_scales = packed->scales(),
                                        .y = y.data(),
                                        .y_stride = kRows,
                                        .partial = nullptr,
                                        .split_stride = 0,
                                        .rows = kRows,
                                        .padded_rows = packed->padded_rows(),
                                        .depth = packed->depth(),
                                        .num_tokens = kTokens,
                                        .num_row_blocks = 1,
                                        .num_splits = 1,
                                        .blocks_per_split = 1,
                                        .tickets = nullptr,
                                        .y_is_float = true,
                                        .adds_to_y = false},
                     CeilDiv(kTokens, QuantizedKernels::kTokens[i]));
    EXPECT_EQ(y.Download(), Formula(x, w)) << "blocks of " << QuantizedKernels::kTokens[i] << " tokens";
  }
}

TEST_F(RoundedProductTest, BitsAreThoseOfTheScalarFormula) {
  // The last tile of rows and the last block of columns are not full. Some rows have several splits, of which the last
  // one is shorter, and some matrices two blocks of rows, of which the second one has missing tiles.
  constexpr struct { int rows, cols; } kShapes[] = {{8, 8}, {40, 160}, {17, 200}, {136, 320}, {24, 1096}, {150, 600}};
  int num_tokens = 1;
  for (const DataType element : kElements) {
    for (const auto& [rows, cols] : kShapes) {
      for (int i = 0; i < 3; ++i) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " x " << cols << ", " << Name(element));
        const QuantizedCase w(QuantizedFormat::kInt8, rows, cols, 0, rows + cols);
        const std::vector<float> x = RandomRows(num_tokens, cols, element, num_tokens);
        ASSERT_EQ(Multiply(x, w, element, DataType::kFloat32), Formula(x, w));
        num_tokens = num_tokens >= 64 ? num_tokens % 5 + 1 : num_tokens + (num_tokens < 17 ? 5 : 23);
        num_tokens = std::min(num_tokens, 64);
      }
    }
  }
}

// The library multiplies them in parts. The last part of the rows has one, and there are two parts of tokens.
TEST_F(RoundedProductTest, ManyTokensHaveTheSameBits) {
  constexpr int kRows = 33, kCols = 136, kTokens = 75;
  for (const DataType element : kElements) {
    const QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, 1);
    const std::vector<float> x = RandomRows(kTokens, kCols, element, 1), expected = Formula(x, w);
    EXPECT_EQ(Multiply(x, w, element, DataType::kFloat32), expected);
    const std::vector<float> last(x.end() - 3 * kCols, x.end());
    EXPECT_EQ(Multiply(last, w, element, DataType::kFloat32),
              std::vector<float>(expected.end() - 3 * kRows, expected.end()));
  }
}

// Rows of 40 elements begin at multiples of 16 bytes, and rows of 19 do not. The products are rounded before the
// addition.
TEST_F(RoundedProductTest, ResultsAreAddedInFloat32AndRoundedOnce) {
  for (const DataType element : kElements) {
    for (const int num_tokens : {3, 20, 66}) {
      for (const int rows : {40, 19}) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " rows, " << Name(element));
        const int cols = num_tokens == 20 ? 520 : 64;
        const QuantizedCase w(QuantizedFormat::kInt8, rows, cols, 0, 6);
        const std::vector<float> x = RandomRows(num_tokens, cols, element, 6);
        const std::vector<float> initial = RandomRows(num_tokens, rows, element, 7, 100), products = Formula(x, w);
        std::vector<float> sums = products;
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += initial[i];
        EXPECT_EQ(Multiply(x, w, element, DataType::kFloat32, &initial), sums);
        EXPECT_EQ(Multiply(x, w, element, element), Rounded(products, element));
        EXPECT_EQ(Multiply(x, w, element, element, &initial), Rounded(sums, element));
      }
    }
  }
}

// Sums above 2^24 are rounded once, when they become float32.
TEST_F(RoundedProductTest, LargeSumsAreExact) {
  constexpr int kRows = 3, kCols = 16384;
  QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, 8);
  std::fill_n(w.values.begin(), kCols, int8_t{-128});
  std::fill_n(w.values.begin() + kCols, kCols, int8_t{127});
  for (const int num_tokens : {2, 65}) {
    std::vector<float> x(size_t(num_tokens) * kCols, 2.0f);
    x[5] = -2;
    EXPECT_EQ(Multiply(x, w, DataType::kBFloat16, DataType::kFloat32), Formula(x, w)) << num_tokens << " tokens";
  }
}

TEST_F(RoundedProductTest, InfinitiesAndNansStayInTheirRowAndSmallRowsBecomeZeros) {
  constexpr int kRows = 24, kCols = 328;
  constexpr DataType kElement = DataType::kBFloat16;
  const QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, 9);
  for (const int num_tokens : {12, 65}) {
    std::vector<float> x = RandomRows(num_tokens, kCols, kElement, 9);
    x[2 * kCols + 44] = NAN;
    x[7 * kCols + 327] = -INFINITY;
    std::fill_n(x.begin() + 9 * kCols, kCols, 0.0f);
    std::fill_n(x.begin() + 11 * kCols, kCols, 0x1p-120f);
    const std::vector<float> y = Multiply(x, w, kElement, DataType::kFloat32), expected = Formula(x, w);
    for (int i = 0; i < num_tokens * kRows; ++i) {
      const int token = i / kRows;
      if (token == 2 || token == 7) {
        ASSERT_TRUE(std::isnan(y[i])) << i;
      } else {
        ASSERT_EQ(y[i], expected[i]) << i;
      }
      if (token == 9 || token == 11) {
        ASSERT_EQ(y[i], 0) << i;
      }
    }
  }
}

TEST_F(RoundedProductTest, AStackOfMatricesHasTheRowsOfAllInTheirOrder) {
  constexpr int kRows = 50, kCols = 72, kTokens = 4;
  const QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, 10);
  const QuantizedMatrixView parts[] = {w.View(0, 1), w.View(1, 30), w.View(31, kRows - 31)};
  const auto packed = ByteCudaMatrix::Pack(device(), parts, 3);
  RoundedProducts products = Products(DataType::kFloat16);
  const std::vector<float> x = RandomRows(kTokens, kCols, DataType::kFloat16, 10);
  DeviceArray<char> device_x(device(), Encoded(x, DataType::kFloat16));
  DeviceArray<float> y(device(), kTokens * kRows);
  products.Multiply(reinterpret_cast<const uint16_t*>(device_x.data()), *packed, kTokens, y.data(), DataType::kFloat32,
                    /*adds_to_y=*/false);
  EXPECT_EQ(y.Download(), Formula(x, w));
  EXPECT_EQ(products.Check(*packed, parts, 3).message(), "");
}

TEST_F(RoundedProductTest, TheCheckRefusesAProductThatIsWrongByOne) {
  constexpr int kRows = 40, kCols = 160;
  for (const DataType element : kElements) {
    QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, 11);
    const QuantizedMatrixView view = w.View();
    const auto packed = ByteCudaMatrix::Pack(device(), &view, 1);
    RoundedProducts right = Products(element), wrong = Products(element);
    EXPECT_EQ(right.Check(*packed, &view, 1).message(), "");
    // The kernels multiply what was packed, and the check expects one other number in the last row.
    w.values.back() = int8_t(w.values.back() ^ 1);
    const BackendStatus status = wrong.Check(*packed, &view, 1);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("row 39"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace quire::cuda
