// SPDX-License-Identifier: Apache-2.0

// Products of rounded rows by matrices of FP8 on a device. The sums may be less exact than sums of float32, so results
// are compared with float64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/round_rows.h"
#include "kernels/cuda/rounded_products.h"
#include "kernels/fp8.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/expected_products.h"
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

ExpectedProducts Formula(const std::vector<float>& x, const QuantizedCase& w) {
  const size_t group = w.has_blocks ? 128 : size_t(w.cols);
  std::vector<double> rounded;
  for (size_t first = 0; first < x.size(); first += group) {
    const Fp8Row row = RoundedRow(&x[first], int(group));
    for (const uint8_t number : row.numbers) rounded.push_back(double{Fp8ToFloat(number)} * row.scale);
  }
  return ExpectedProducts(rounded, w.Weights(), w.cols, Fp8SumTolerance);
}

// Where products of the library in blocks have room, if the number of tokens is no multiple of four.
enum class Room { kElsewhere, kInY, kNowhere };

class Fp8ProductTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped() || Kernels(DataType::kBFloat16).rounded_fp8.exist()) return;
    const std::string description = device()->Description();
    const bool needs_them =
        device()->NumericsFingerprint() == "emulated" || description.find(", sm_90, ") != std::string::npos;
    ASSERT_FALSE(needs_them) << "the device lacks the kernels: " << description;
    GTEST_SKIP() << "the device has no kernels for it";
  }

  const KernelTable& Kernels(DataType element) { return *device()->FindKernels(element, 128, 16); }

  // See rounded_multiply.h. More tokens than most_few_tokens are multiplied by the library.
  std::vector<float> Multiply(const std::vector<float>& x, const QuantizedCase& w, DataType element, DataType y_type,
                              std::optional<int> most_few_tokens = std::nullopt,
                              const std::vector<float>* initial = nullptr, Room room = Room::kElsewhere) {
    const size_t sum_bytes = room == Room::kElsewhere ? RoundedProducts::kSumBytes : 1;
    return MultiplyRounded(device(),
                           RoundedProducts(device(), &Kernels(element), element, sum_bytes,
                                           RoundedProducts::kMostTokensAtOnce, most_few_tokens),
                           x, w, element, y_type, initial, room == Room::kInY);
  }

  // Expects that products are added to y, in float32 and in 16 bits.
  void ExpectAddsAndRounds(const QuantizedCase& w, int num_tokens, DataType element, Room room = Room::kElsewhere) {
    const std::vector<float> x = RandomRows(num_tokens, w.cols, element, 6);
    const std::vector<float> initial = RandomRows(num_tokens, w.rows, element, 7);
    const ExpectedProducts expected = Formula(x, w);
    // cuBLASLt 13.1 rounds the product before it adds it.
    const bool rounds_twice = num_tokens > RoundedProducts::kMostFp8Tokens;
    for (const DataType y_type : {DataType::kFloat32, element}) {
      ExpectNear(Multiply(x, w, element, y_type, std::nullopt, &initial, room), expected, y_type, &initial,
                 rounds_twice);
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

TEST_F(Fp8ProductTest, GroupsOfColumnsAreRoundedToTheNearestNumbers) {
  constexpr int kRows = 5, kPaddedRows = 8, kCols = 640, kGroup = 128, kNumGroups = kCols / kGroup;
  for (const DataType element : kElements) {
    std::vector<float> x = RandomRows(kRows, kCols, element, 3);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= float(1 << i / kGroup % 7);  // Each group has another scale.
    DeviceArray<char> device_x(device(), Encoded(x, element));
    DeviceArray<int8_t> y(device(), std::vector<int8_t>(kPaddedRows * kCols, 55));
    DeviceArray<float> scales(device(), std::vector<float>(kNumGroups * kPaddedRows, 55));
    device()->Launch(Kernels(element).rounded_fp8_blocks.round_groups,
                     RoundGroupsArgs{.x = reinterpret_cast<const uint16_t*>(device_x.data()),
                                     .y = y.data(),
                                     .scales = scales.data(),
                                     .num_rows = kRows,
                                     .padded_rows = kPaddedRows,
                                     .dim = kCols},
                     /*num_blocks=*/2);
    const std::vector<int8_t> numbers = y.Download();
    const std::vector<float> group_scales = scales.Download();
    for (int group = 0; group < kPaddedRows * kNumGroups; ++group) {
      const int row = group / kNumGroups;
      Fp8Row expected = {.numbers = std::vector<uint8_t>(kGroup), .scale = 0};
      if (row < kRows) expected = RoundedRow(&x[group * kGroup], kGroup);
      EXPECT_EQ(group_scales[group % kNumGroups * kPaddedRows + row], expected.scale) << group;
      for (int k = 0; k < kGroup; ++k) {
        ASSERT_EQ(uint8_t(numbers[group * kGroup + k]), expected.numbers[k]) << "group " << group << ", column " << k;
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
        ExpectNear(Multiply(x, w, element, DataType::kFloat32), Formula(x, w), DataType::kFloat32);
        if (HasFatalFailure()) return;
        num_tokens = num_tokens >= 64 ? num_tokens % 5 + 1 : std::min(64, num_tokens + (num_tokens < 17 ? 5 : 23));
      }
    }
  }
}

TEST_F(Fp8ProductTest, FewTokensByBlocksAgreeWithFloat64) {
  // The last block of rows and its last tile are not full. Some rows have several splits, of which the last one is
  // shorter.
  constexpr struct { int rows, cols; } kShapes[] = {{17, 128}, {128, 256}, {200, 640}, {300, 1152}};
  int num_tokens = 1;
  for (const DataType element : kElements) {
    for (const auto& [rows, cols] : kShapes) {
      for (int i = 0; i < 3; ++i) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " x " << cols << ", " << Name(element));
        const QuantizedCase w = QuantizedCase::InBlocks(rows, cols, rows + cols);
        const std::vector<float> x = RandomRows(num_tokens, cols, element, num_tokens);
        ExpectNear(Multiply(x, w, element, DataType::kFloat32), Formula(x, w), DataType::kFloat32);
        if (HasFatalFailure()) return;
        num_tokens = num_tokens >= 64 ? num_tokens % 5 + 1 : std::min(64, num_tokens + (num_tokens < 17 ? 5 : 23));
      }
    }
  }
}

// The library multiplies them, and the last ones of 75 tokens in each of the ways. Our kernel takes 70 tokens in two
// blocks, and also the products by 19 columns, which the library does not have.
TEST_F(Fp8ProductTest, ManyTokensByBlocksAgreeWithFloat64) {
  constexpr int kCols = 384;
  constexpr DataType kFloat = DataType::kFloat32;
  for (const DataType element : kElements) {
    for (const int rows : {136, 19}) {
      const QuantizedCase w = QuantizedCase::InBlocks(rows, kCols, 1);
      for (const int num_tokens : {75, 76}) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " rows, " << Name(element));
        const std::vector<float> x = RandomRows(num_tokens, kCols, element, 1);
        const ExpectedProducts expected = Formula(x, w);
        for (const Room room : {Room::kElsewhere, Room::kInY, Room::kNowhere}) {
          ExpectNear(Multiply(x, w, element, kFloat, std::nullopt, nullptr, room), expected, kFloat);
        }
        ExpectNear(Multiply(x, w, element, kFloat, /*most_few_tokens=*/1000), expected, kFloat);
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
    const ExpectedProducts expected = Formula(x, w);
    ExpectNear(Multiply(x, w, element, DataType::kFloat32), expected, DataType::kFloat32);
    ExpectNear(Multiply(x, w, element, DataType::kFloat32, /*most_few_tokens=*/1000), expected, DataType::kFloat32);
  }
}

// Tensor cores lose small products beside a large sum. The kernel adds their sums of 128 columns in float32, so only
// those beside the large number of the first column are lost. If all columns of a thread block were added by the tensor
// cores, more products would be lost than the bound allows.
TEST_F(Fp8ProductTest, SmallProductsAreLostBesideLargeOnesOf128ColumnsOnly) {
  constexpr int kRows = 8, kCols = 4096;
  constexpr uint8_t kOne = 0x38;
  for (const DataType element : kElements) {
    QuantizedCase w(QuantizedFormat::kFp8, kRows, kCols, kCols, 1);
    std::fill(w.values.begin(), w.values.end(), kOne);
    std::fill(w.scales.begin(), w.scales.end(), 1.0f);
    for (const int num_tokens : {1, 12, 20, 64}) {
      SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << Name(element));
      std::vector<float> x(size_t(num_tokens) * kCols, 1.75f / 64);
      for (int token = 0; token < num_tokens; ++token) x[size_t(token) * kCols] = 448;
      ExpectNear(Multiply(x, w, element, DataType::kFloat32), Formula(x, w), DataType::kFloat32);
    }
  }
}

TEST_F(Fp8ProductTest, ResultsAreAddedAndRounded) {
  for (const DataType element : kElements) {
    for (const int num_tokens : {3, 20, 66}) {
      for (const int rows : {48, 19}) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " rows, " << Name(element));
        const int cols = num_tokens == 20 ? 528 : 64;
        const QuantizedCase w(QuantizedFormat::kFp8, rows, cols, cols, 6);
        ExpectAddsAndRounds(w, num_tokens, element);
      }
    }
  }
}

TEST_F(Fp8ProductTest, ResultsByBlocksAreAddedAndRounded) {
  for (const DataType element : kElements) {
    for (const int num_tokens : {3, 20, 66}) {
      for (const int rows : {136, 19}) {
        SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " rows, " << Name(element));
        const QuantizedCase w = QuantizedCase::InBlocks(rows, num_tokens == 20 ? 640 : 128, 6);
        for (const Room room : {Room::kElsewhere, Room::kInY, Room::kNowhere}) {
          ExpectAddsAndRounds(w, num_tokens, element, room);
        }
      }
    }
  }
}

TEST_F(Fp8ProductTest, InfinitiesAndNansStayInTheirRowAndSmallRowsBecomeZeros) {
  constexpr int kRows = 32, kCols = 384;
  constexpr DataType kElement = DataType::kBFloat16;
  const QuantizedCase of_rows(QuantizedFormat::kFp8, kRows, kCols, kCols, 9);
  const QuantizedCase in_blocks = QuantizedCase::InBlocks(kRows, kCols, 9);
  for (const auto& [num_tokens, w] :
       {std::pair(12, of_rows), std::pair(65, of_rows), std::pair(12, in_blocks), std::pair(65, in_blocks)}) {
    std::vector<float> x = RandomRows(num_tokens, kCols, kElement, 9);
    const ExpectedProducts expected = Formula(x, w);
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
        ASSERT_NEAR(y[i], expected.sums[i], expected.tolerances[i]) << i;
      }
    }
  }
}

TEST_F(Fp8ProductTest, TheCheckAcceptsRightProductsAndRefusesWrongOnes) {
  constexpr int kRows = 40, kCols = 256;
  for (const DataType element : kElements) {
    RoundedProducts right(device(), &Kernels(element), element), wrong(device(), &Kernels(element), element);
    for (const bool has_blocks : {false, true}) {
      QuantizedCase w = has_blocks ? QuantizedCase::InBlocks(kRows, kCols, 11)
                                   : QuantizedCase(QuantizedFormat::kFp8, kRows, kCols, kCols, 11);
      w.values.back() = 0x7e;
      const QuantizedMatrixView view = w.View();
      const auto packed = ByteCudaMatrix::Pack(device(), &view, 1);
      EXPECT_EQ(right.Check(*packed, &view, 1).message(), "");
      // The kernels multiply what was packed, and the check expects another sign of a large number in the last row.
      w.values.back() = int8_t(w.values.back() ^ 0x80);
      const BackendStatus status = wrong.Check(*packed, &view, 1);
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("row 39"), std::string::npos) << status.message();
    }
  }
}

// The scales of Q, K and V lie one behind the other. The check compares rows of all of them.
TEST_F(Fp8ProductTest, StacksOfMatricesInBlocksHaveTheScalesOfAll) {
  constexpr int kCols = 640;
  constexpr DataType kElement = DataType::kBFloat16;
  const QuantizedCase q = QuantizedCase::InBlocks(256, kCols, 21), k = QuantizedCase::InBlocks(128, kCols, 22),
                      v = QuantizedCase::InBlocks(72, kCols, 23);
  const QuantizedMatrixView stack[] = {q.View(), k.View(), v.View()};
  ASSERT_TRUE(ByteCudaMatrix::CanPack(stack, 3));
  const auto packed = ByteCudaMatrix::Pack(device(), stack, 3);
  RoundedProducts products(device(), &Kernels(kElement), kElement);
  EXPECT_EQ(products.Check(*packed, stack, 3).message(), "");
}

}  // namespace
}  // namespace quire::cuda
