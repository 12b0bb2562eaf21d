// SPDX-License-Identifier: Apache-2.0

// Products by quantized matrices on a device, compared with the scalar formulas of quantized_product.h and
// dequantize.h.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/quantized_products.h"
#include "kernels/cuda/split_sum.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/expected_products.h"
#include "tests/kernels/cuda/quantized_cases.h"

namespace quire::cuda {
namespace {

constexpr DataType kElements[] = {DataType::kBFloat16, DataType::kFloat16};
constexpr QuantizedFormat kFormats[] = {QuantizedFormat::kInt4, QuantizedFormat::kInt8, QuantizedFormat::kFp8};
// Slices of one tile of 16 rows.
constexpr size_t kSmallSlices = 1;
constexpr int kMostPacked = 64;  // More tokens are multiplied by slices.

class QuantizedProductTest : public DeviceTest {
 protected:
  const KernelTable* Kernels(DataType element) const { return device()->FindKernels(element, 128, 16); }
  QuantizedProducts Products(DataType element, bool exact = false) {
    return QuantizedProducts(device(), Kernels(element), element, exact || IsExactGpu(), kSmallSlices, kMostPacked);
  }

  // Returns y[num_tokens, rows], which began with `initial`, or with other numbers to be overwritten.
  std::vector<float> Multiply(QuantizedProducts* products, const std::vector<float>& x, const QuantizedCudaMatrix& w,
                              DataType element, DataType y_type, const std::vector<float>* initial = nullptr) {
    const int num_tokens = int(x.size() / w.cols());
    const std::vector<float> before =
        initial == nullptr ? std::vector<float>(size_t(num_tokens) * w.rows(), 7) : *initial;
    DeviceArray<char> device_x(device(), Encoded(x, element)), y(device(), Encoded(before, y_type));
    products->Multiply(reinterpret_cast<const uint16_t*>(device_x.data()), w, num_tokens, y.data(), y_type,
                       initial != nullptr);
    return Decoded(y.Download(), y_type);
  }
};

struct Shape {
  int rows, cols, group;
};

TEST_F(QuantizedProductTest, FewTokensAgreeWithTheFormula) {
  // The last tile and the last block are not full; groups end within blocks and have several blocks.
  constexpr Shape kShapes[] = {{8, 8, 32}, {40, 160, 32}, {17, 200, 64}, {136, 320, 128}, {24, 1096, 128}};
  int num_tokens = 1;
  for (const QuantizedFormat format : kFormats) {
    for (const DataType element : kElements) {
      QuantizedProducts products = Products(element);
      for (const auto& [rows, cols, group] : kShapes) {
        const QuantizedCase w(format, rows, cols, group, rows + cols);
        const QuantizedMatrixView view = w.View();
        const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
        num_tokens = num_tokens % 64 + (num_tokens < 8 ? 6 : 17);  // Some for each kernel.
        num_tokens = std::min(num_tokens, 64);
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " x " << cols << " in groups of "
                                        << group << ", " << Name(format) << ", " << Name(element));
        Random random(cols);
        const std::vector<float> x = Rounded(random.Normals(size_t(num_tokens) * cols), element);
        ExpectNear(Multiply(&products, x, *packed, element, DataType::kFloat32), ProductsOf(x, w), DataType::kFloat32);
      }
    }
  }
}

// Products by unit vectors are the weights themselves, so that every bit counts.
TEST_F(QuantizedProductTest, EveryNumberIsConvertedExactly) {
  constexpr int kRows = 24, kCols = 64;
  for (const QuantizedFormat format : kFormats) {
    for (const DataType element : kElements) {
      QuantizedProducts products = Products(element);
      const QuantizedCase w(format, kRows, kCols, 32, 3);
      const QuantizedMatrixView view = w.View();
      const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
      std::vector<float> x(size_t(kCols) * kCols);
      for (int k = 0; k < kCols; ++k) x[k * kCols + k] = 1;
      const std::vector<float> y = Multiply(&products, x, *packed, element, DataType::kFloat32);
      for (int k = 0; k < kCols; ++k) {
        for (int n = 0; n < kRows; ++n) {
          ASSERT_EQ(y[k * kRows + n], w.Number(n, k) * w.Scale(n, k))
              << "row " << n << ", column " << k << ", " << Name(format) << ", " << Name(element);
        }
      }
    }
  }
}

TEST_F(QuantizedProductTest, DequantizedRowsAreTheRoundedFormulaBitForBit) {
  constexpr int kRows = 44, kCols = 136;
  for (const QuantizedFormat format : kFormats) {
    for (const DataType element : kElements) {
      const QuantizedCase w(format, kRows, kCols, 64, 4);
      const QuantizedMatrixView view = w.View();
      const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
      const KernelTable& kernels = *Kernels(element);
      const QuantizedKernels& of_format = format == QuantizedFormat::kInt8  ? kernels.int8
                                          : format == QuantizedFormat::kFp8 ? kernels.fp8
                                                                            : kernels.int4;
      // The rows from the second tile on; behind them, nothing may be written.
      constexpr int kFirst = kWeightTileRows;
      DeviceArray<uint16_t> y(device(), std::vector<uint16_t>((kRows - kFirst + 1) * kCols, 0x1234));
      device()->Launch(of_format.dequantize,
                       DequantizeArgs{.w = packed->weights(), .y = y.data(), .first_tile = 1, .num_tiles = 2}, 2);
      const std::vector<uint16_t> bits = y.Download();
      std::vector<double> expected = w.RoundedWeights(element);
      for (int i = 0; i < (kRows - kFirst) * kCols; ++i) {
        const float value = element == DataType::kBFloat16 ? ToFloat(BFloat16{bits[i]}) : ToFloat(Float16{bits[i]});
        ASSERT_EQ(value, expected[kFirst * kCols + i]) << i << ", " << Name(format) << ", " << Name(element);
      }
      for (size_t i = size_t(kRows - kFirst) * kCols; i < bits.size(); ++i) ASSERT_EQ(bits[i], 0x1234);
    }
  }
}

TEST_F(QuantizedProductTest, ManyTokensAreMultipliedByDequantizedSlices) {
  if (IsExactGpu()) GTEST_SKIP() << "exact products are not made of slices";
  constexpr int kRows = 40, kCols = 72, kTokens = 65;
  for (const QuantizedFormat format : kFormats) {
    constexpr DataType kElement = DataType::kBFloat16;
    QuantizedProducts products = Products(kElement);
    const QuantizedCase w(format, kRows, kCols, 32, 5);
    const QuantizedMatrixView view = w.View();
    const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
    Random random(5);
    const std::vector<float> x = Rounded(random.Normals(size_t(kTokens) * kCols), kElement);
    const std::vector<float> initial = Rounded(random.Normals(size_t(kTokens) * kRows), kElement);
    const ExpectedProducts expected = RoundedProductsOf(x, w, kElement);
    for (const DataType y_type : {DataType::kFloat32, kElement}) {
      ExpectNear(Multiply(&products, x, *packed, kElement, y_type), expected, y_type);
      ExpectNear(Multiply(&products, x, *packed, kElement, y_type, &initial), expected, y_type, &initial,
                 /*rounds_twice=*/true);
    }
  }
}

TEST_F(QuantizedProductTest, ResultsAreAddedAndRounded) {
  constexpr int kRows = 19, kCols = 64, kTokens = 3;  // 57 elements: the last one of eight is alone.
  for (const DataType element : kElements) {
    QuantizedProducts products = Products(element);
    const QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, 6);
    const QuantizedMatrixView view = w.View();
    const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
    Random random(6);
    const std::vector<float> x = Rounded(random.Normals(kTokens * kCols), element);
    const std::vector<float> initial = Rounded(random.Normals(kTokens * kRows, 100), element);
    const ExpectedProducts expected = ProductsOf(x, w);
    for (const DataType y_type : {element, DataType::kFloat32}) {
      ExpectNear(Multiply(&products, x, *packed, element, y_type), expected, y_type);
      ExpectNear(Multiply(&products, x, *packed, element, y_type, &initial), expected, y_type, &initial);
    }
  }
}

TEST_F(QuantizedProductTest, SplitsAreAddedInAscendingOrder) {
  constexpr int kSplits = 3, kCount = 21, kStride = 24;
  std::vector<float> partial(kSplits * kStride);
  for (int i = 0; i < kCount; ++i) {  // In another order, the small number would be lost.
    partial[i] = 1e8f;
    partial[kStride + i] = -1e8f;
    partial[2 * kStride + i] = float(i) / 8;
  }
  DeviceArray<float> sums(device(), partial), y(device(), kCount);
  for (const DataType element : kElements) {
    device()->Launch(Kernels(element)->split_sum,
                     SplitSumArgs{.partial = sums.data(),
                                  .y = y.data(),
                                  .split_stride = kStride,
                                  .count = kCount,
                                  .num_splits = kSplits,
                                  .y_is_float = true,
                                  .adds_to_y = false},
                     1);
    const std::vector<float> result = y.Download();
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(result[i], float(i) / 8);
  }
}

TEST_F(QuantizedProductTest, ExactProductsOfATokenDoNotDependOnTheOthers) {
  constexpr int kRows = 40, kCols = 1064, kTokens = 81;
  constexpr DataType kElement = DataType::kBFloat16;
  for (const QuantizedFormat format : kFormats) {
    QuantizedProducts products = Products(kElement, /*exact=*/true);
    const QuantizedCase w(format, kRows, kCols, 128, 7);
    const QuantizedMatrixView view = w.View();
    const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
    Random random(7);
    const std::vector<float> x = Rounded(random.Normals(size_t(kTokens) * kCols), kElement);
    const std::vector<float> all = Multiply(&products, x, *packed, kElement, DataType::kFloat32);
    for (const auto& [first, count] : {std::pair(0, 1), {80, 1}, {3, 17}, {40, 33}, {17, 64}}) {
      const std::vector<float> part(x.begin() + first * kCols, x.begin() + (first + count) * kCols);
      EXPECT_EQ(Multiply(&products, part, *packed, kElement, DataType::kFloat32),
                std::vector<float>(all.begin() + first * kRows, all.begin() + (first + count) * kRows))
          << count << " tokens from " << first << ", " << Name(format);
    }
  }
}

TEST_F(QuantizedProductTest, ANanStaysInItsToken) {
  constexpr int kRows = 32, kCols = 64, kTokens = 9;
  constexpr DataType kElement = DataType::kBFloat16;
  QuantizedProducts products = Products(kElement);
  const QuantizedCase w(QuantizedFormat::kInt4, kRows, kCols, 64, 8);
  const QuantizedMatrixView view = w.View();
  const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
  std::vector<float> x(kTokens * kCols, 1.0f);
  x[4 * kCols + 5] = NAN;
  const std::vector<float> y = Multiply(&products, x, *packed, kElement, DataType::kFloat32);
  for (int i = 0; i < kTokens * kRows; ++i) EXPECT_EQ(std::isnan(y[i]), i / kRows == 4) << i;
}

// A stack whose parts end within tiles, with columns in another order than the input.
TEST_F(QuantizedProductTest, StacksAndTheOrderOfColumnsAreKept) {
  constexpr int kRows = 45, kCols = 96;
  constexpr DataType kElement = DataType::kBFloat16;
  for (const int num_tokens : {2, 66}) {
    QuantizedProducts products = Products(kElement);
    const QuantizedCase w(QuantizedFormat::kInt4, kRows, kCols, 32, 9);
    std::vector<int32_t> order(kCols);
    for (int k = 0; k < kCols; ++k) order[k] = k * 5 % kCols;
    QuantizedMatrixView views[] = {w.View(0, 20), w.View(20, 1), w.View(21, 24)};
    for (QuantizedMatrixView& view : views) view.order = order.data();
    const auto packed = QuantizedCudaMatrix::Pack(device(), views, 3);
    Random random(9);
    const std::vector<float> x = Rounded(random.Normals(size_t(num_tokens) * kCols), kElement);
    std::vector<float> ordered = x;
    for (int i = 0; i < num_tokens; ++i) {
      for (int k = 0; k < kCols; ++k) ordered[i * kCols + k] = x[i * kCols + order[k]];
    }
    const bool is_packed = num_tokens <= kMostPacked || IsExactGpu();
    ExpectNear(Multiply(&products, x, *packed, kElement, DataType::kFloat32),
               is_packed ? ProductsOf(ordered, w) : RoundedProductsOf(ordered, w, kElement), DataType::kFloat32);
    EXPECT_TRUE(products.Check(*packed, views, 3).ok());
  }
}

TEST_F(QuantizedProductTest, TheCheckAcceptsRightProductsAndRefusesWrongOnes) {
  constexpr int kRows = 40, kCols = 160;
  for (const QuantizedFormat format : kFormats) {
    for (const DataType element : kElements) {
      QuantizedCase w(format, kRows, kCols, 32, 10);
      const QuantizedMatrixView view = w.View();
      const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
      QuantizedProducts right = Products(element), wrong = Products(element);
      EXPECT_EQ(right.Check(*packed, &view, 1).message(), "");
      // The kernels multiply what was packed, and the check expects one other number in the last row.
      w.values.back() = int8_t(w.values.back() ^ 1);
      const BackendStatus status = wrong.Check(*packed, &view, 1);
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("row 39"), std::string::npos) << status.message();
    }
  }
}

}  // namespace
}  // namespace quire::cuda
