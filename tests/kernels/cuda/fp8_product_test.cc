// SPDX-License-Identifier: Apache-2.0

// Products of rounded rows by matrices of FP8 on a device. The sums may be less exact than those of float32, so results
// are compared with float64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/cuda/product_check.h"
#include "kernels/cuda/round_rows.h"
#include "kernels/cuda/rounded_products.h"
#include "kernels/fp8.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/quantized_cases.h"
#include "tests/kernels/cuda/rounded_multiply.h"

namespace quire::cuda {
namespace {

constexpr DataType kElements[] = {DataType::kBFloat16, DataType::kFloat16};

struct Fp8Row {
  std::vector<uint8_t> numbers;
  float scale;
};

Fp8Row RoundedRow(const float* x, int cols) {
  float largest = 0;
  for (int k = 0; k < cols; ++k) largest = std::max(largest, std::fabs(x[k]));
  Fp8Row row = {.numbers = {}, .scale = largest / 448};
  for (int k = 0; k < cols; ++k) row.numbers.push_back(FloatToFp8(x[k] * (448 / largest)));
  return row;
}

std::vector<float> RandomRows(int num_tokens, int cols, DataType element, uint64_t seed) {
  Random random(seed);
  std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
  // Each token has another scale.
  for (size_t i = 0; i < x.size(); ++i) x[i] *= float(1 + i / size_t(cols) % 5);
  return Rounded(x, element);
}

// The products in float64, and what a result may differ from them.
struct Reference {
  std::vector<double> products;
  std::vector<double> tolerances;
};

Reference Formula(const std::vector<float>& x, const QuantizedCase& w) {
  const std::vector<double> weights = w.Weights();
  const int num_tokens = int(x.size()) / w.cols;
  Reference reference;
  for (int token = 0; token < num_tokens; ++token) {
    const Fp8Row row = RoundedRow(&x[size_t(token) * w.cols], w.cols);
    for (int n = 0; n < w.rows; ++n) {
      std::vector<double> products(w.cols);
      double sum = 0, magnitudes = 0;
      for (int k = 0; k < w.cols; ++k) {
        products[k] = double{Fp8ToFloat(row.numbers[k])} * row.scale * weights[size_t(n) * w.cols + k];
        sum += products[k];
        magnitudes += std::fabs(products[k]);
      }
      reference.products.push_back(sum);
      reference.tolerances.push_back(Fp8SumTolerance(products) + 1e-6 * magnitudes);
    }
  }
  return reference;
}

class Fp8ProductTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && Kernels(DataType::kBFloat16).rounded_fp8.round_rows.entry == nullptr) {
      GTEST_SKIP() << "the device has no kernels for it";
    }
  }

  const KernelTable& Kernels(DataType element) { return *device()->FindKernels(element, 128, 16); }

  // See rounded_multiply.h. More tokens than most_few_tokens are multiplied by the library.
  std::vector<float> Multiply(const std::vector<float>& x, const QuantizedCase& w, DataType element, DataType y_type,
                              std::optional<int> most_few_tokens = std::nullopt,
                              const std::vector<float>* initial = nullptr) {
    return MultiplyRounded(device(),
                           RoundedProducts(device(), &Kernels(element), element, RoundedProducts::kSumBytes,
                                           RoundedProducts::kMostTokensAtOnce, most_few_tokens),
                           x, w, element, y_type, initial);
  }

  static void ExpectNear(const std::vector<float>& actual, const Reference& expected) {
    ASSERT_EQ(actual.size(), expected.products.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      const double distance = std::fabs(actual[i] - expected.products[i]) / expected.tolerances[i];
      ASSERT_LE(distance, 1) << actual[i] << " instead of " << expected.products[i] << " at " << i;
    }
  }
};

TEST_F(Fp8ProductTest, RowsAreRoundedToTheNearestNumbers) {
  constexpr int kRows = 5, kCols = 2200, kPaddedCols = 2304;
  for (const DataType element : kElements) {
    const std::vector<float> x = RandomRows(kRows, kCols, element, 3);
    DeviceArray<char> device_x(device(), Encoded(x, element));
    DeviceArray<int8_t> y(device(), std::vector<int8_t>(kRows * kPaddedCols, 55));
    DeviceArray<float> scales(device(), kRows);
    device()->Launch(Kernels(element).rounded_fp8.round_rows,
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
      const Fp8Row expected = RoundedRow(&x[row * kCols], kCols);
      EXPECT_EQ(row_scales[row], expected.scale);
      for (int k = 0; k < kPaddedCols; ++k) {
        const uint8_t number = k < kCols ? expected.numbers[k] : 0;
        ASSERT_EQ(uint8_t(numbers[row * kPaddedCols + k]), number) << "row " << row << ", column " << k;
      }
    }
  }
}

TEST_F(Fp8ProductTest, FewTokensAgreeWithFloat64) {
  // The last tile of rows and the last block of columns are not full. Some rows have several splits, of which the last
  // one is shorter, and some matrices two blocks of rows, of which the second one has missing tiles.
  constexpr struct { int rows, cols; } kShapes[] = {{8, 8}, {17, 200}, {136, 320}, {24, 1096}, {150, 600}};
  int num_tokens = 1;
  for (const DataType element : kElements) {
    for (const auto& [rows, cols] : kShapes) {
      for (int i = 0; i < 3; ++i) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " x " << cols << ", " << Name(element));
        const QuantizedCase w(QuantizedFormat::kFp8, rows, cols, cols + 32, rows + cols);
        const std::vector<float> x = RandomRows(num_tokens, cols, element, num_tokens);
        ExpectNear(Multiply(x, w, element, DataType::kFloat32), Formula(x, w));
        if (HasFatalFailure()) return;
        num_tokens = num_tokens >= 64 ? num_tokens % 5 + 1 : std::min(64, num_tokens + (num_tokens < 17 ? 5 : 23));
      }
    }
  }
}

// The library multiplies them, or our kernel in blocks of 64 tokens where it has no such product.
TEST_F(Fp8ProductTest, ManyTokensAgreeWithFloat64) {
  constexpr int kRows = 48, kCols = 272, kTokens = 75;
  for (const DataType element : kElements) {
    const QuantizedCase w(QuantizedFormat::kFp8, kRows, kCols, kCols, 1);
    const std::vector<float> x = RandomRows(kTokens, kCols, element, 1);
    const Reference expected = Formula(x, w);
    ExpectNear(Multiply(x, w, element, DataType::kFloat32), expected);
    ExpectNear(Multiply(x, w, element, DataType::kFloat32, /*most_few_tokens=*/1000), expected);
  }
}

TEST_F(Fp8ProductTest, ResultsAreAddedAndRounded) {
  for (const DataType element : kElements) {
    for (const int num_tokens : {3, 20, 66}) {
      for (const int rows : {48, 19}) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " rows, " << Name(element));
        const int cols = num_tokens == 20 ? 528 : 64;
        const QuantizedCase w(QuantizedFormat::kFp8, rows, cols, cols, 6);
        const std::vector<float> x = RandomRows(num_tokens, cols, element, 6);
        const std::vector<float> initial = RandomRows(num_tokens, rows, element, 7);
        const Reference products = Formula(x, w);
        Reference sums = products;
        for (size_t i = 0; i < sums.products.size(); ++i) sums.products[i] += double{initial[i]};
        ExpectNear(Multiply(x, w, element, DataType::kFloat32, std::nullopt, &initial), sums);
        // Rounding to 16 bits adds half of a unit in the last place, of 8 or 11 bits. cuBLASLt 13.1 also rounds the
        // product before it adds it.
        const double half_unit = element == DataType::kBFloat16 ? 0x1p-8 : 0x1p-11;
        const bool rounds_twice = num_tokens > RoundedProducts::kMostFp8Tokens;
        for (size_t i = 0; i < sums.products.size(); ++i) {
          sums.tolerances[i] += half_unit * std::fabs(sums.products[i]);
          if (rounds_twice) sums.tolerances[i] += half_unit * std::fabs(products.products[i]);
        }
        ExpectNear(Multiply(x, w, element, element, std::nullopt, &initial), sums);
      }
    }
  }
}

TEST_F(Fp8ProductTest, InfinitiesAndNansStayInTheirRowAndSmallRowsBecomeZeros) {
  constexpr int kRows = 32, kCols = 336;
  constexpr DataType kElement = DataType::kBFloat16;
  const QuantizedCase w(QuantizedFormat::kFp8, kRows, kCols, kCols, 9);
  for (const int num_tokens : {12, 65}) {
    std::vector<float> x = RandomRows(num_tokens, kCols, kElement, 9);
    const Reference expected = Formula(x, w);
    x[2 * kCols + 44] = NAN;
    x[7 * kCols + 327] = -INFINITY;
    std::fill_n(x.begin() + 9 * kCols, kCols, 0.0f);
    std::fill_n(x.begin() + 11 * kCols, kCols, 0x1p-120f);
    const std::vector<float> y = Multiply(x, w, kElement, DataType::kFloat32);
    for (int i = 0; i < num_tokens * kRows; ++i) {
      const int token = i / kRows;
      if (token == 2 || token == 7) {
        ASSERT_TRUE(std::isnan(y[i])) << i;
      } else if (token == 9 || token == 11) {
        ASSERT_EQ(y[i], 0) << i;
      } else {
        ASSERT_NEAR(y[i], expected.products[i], expected.tolerances[i]) << i;
      }
    }
  }
}

TEST_F(Fp8ProductTest, TheCheckAcceptsRightProductsAndRefusesWrongOnes) {
  constexpr int kRows = 40, kCols = 160;
  for (const DataType element : kElements) {
    QuantizedCase w(QuantizedFormat::kFp8, kRows, kCols, kCols, 11);
    const QuantizedMatrixView view = w.View();
    const auto packed = ByteCudaMatrix::Pack(device(), &view, 1);
    RoundedProducts right(device(), &Kernels(element), element), wrong(device(), &Kernels(element), element);
    EXPECT_EQ(right.Check(*packed, &view, 1).message(), "");
    // The kernels multiply what was packed, and the check expects another sign in the last row.
    w.values.back() = int8_t(w.values.back() ^ 0x80);
    const BackendStatus status = wrong.Check(*packed, &view, 1);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("row 39"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace quire::cuda
