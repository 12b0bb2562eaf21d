// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/reference/quantized.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

using QuantizedLinearTest = CpuBackendTest;

// A matrix of whole numbers of 8 bits with scales.
struct Weights {
  std::vector<int8_t> values;
  std::vector<float> scales;
  int cols;

  QuantizedMatrixView View(int first_row, int rows) const {
    return {.values = &values[size_t(first_row) * cols], .scales = &scales[first_row], .rows = rows, .cols = cols};
  }
  int rows() const { return int(scales.size()); }
};

Weights RandomWeights(Random* random, int rows, int cols) {
  Weights w = {std::vector<int8_t>(size_t(rows) * cols), random->Normals(rows), cols};
  for (int8_t& value : w.values) value = int8_t(random->Int(-128, 127));
  return w;
}

std::unique_ptr<PackedMatrix> Pack(Backend* backend, const Weights& w) {
  const QuantizedMatrixView view = w.View(0, w.rows());
  return backend->PackQuantized(&view, 1);
}

TEST_P(QuantizedLinearTest, BitsAreThoseOfTheScalarFormula) {
  const auto backend = MakeBackend();
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    const int num_tokens = i < 30 ? i + 1 : random.Int(1, 150), cols = random.Int(1, 150), rows = random.Int(1, 300);
    const std::vector<float> x = random.Normals(size_t(num_tokens) * cols, i % 5 == 0 ? 1e-6f : 3);
    const Weights w = RandomWeights(&random, rows, cols);
    const auto packed = Pack(backend.get(), w);
    ASSERT_EQ(Bits(Multiply(backend.get(), x, *packed, cols, rows)),
              Bits(reference::QuantizedLinear(x, w.values, w.scales, cols)))
        << num_tokens << " x " << cols << " x " << rows;
  }
}

// These sums of extreme products are the largest that 32 bits can hold. A step that saturates would show.
TEST_P(QuantizedLinearTest, ExtremeSumsAreExact) {
  const auto backend = MakeBackend();
  const int rows = 33;
  for (const int cols : {64, 4099, kMaxQuantizedCols}) {
    for (const int8_t value : {int8_t{-128}, int8_t{127}}) {
      for (const float sign : {1.0f, -1.0f}) {
        const std::vector<float> x(3 * size_t(cols), 2 * sign);
        const Weights w = {std::vector<int8_t>(size_t(rows) * cols, value), std::vector<float>(rows, 1), cols};
        const auto packed = Pack(backend.get(), w);
        const float sum = float(int64_t{cols} * value * 127) * sign;
        const std::vector<float> expected(3 * rows, sum * (2 / 127.0f));
        EXPECT_EQ(Multiply(backend.get(), x, *packed, cols, rows), expected) << cols << " columns of " << int(value);
      }
    }
  }
}

TEST_P(QuantizedLinearTest, ARowDoesNotDependOnItsCompanyOrTheThreads) {
  Random random(3);
  const int cols = 67, rows = 130, max_tokens = 205;
  const std::vector<float> x = random.Normals(size_t(max_tokens) * cols);
  const Weights w = RandomWeights(&random, rows, cols);
  const std::vector<float> expected = reference::QuantizedLinear(x, w.values, w.scales, cols);
  for (const int num_threads : {1, 3}) {
    const auto backend = MakeBackend(num_threads);
    const auto packed = Pack(backend.get(), w);
    for (const int num_tokens : {1, 2, 13, 64, max_tokens}) {
      const std::vector<float> first(x.begin(), x.begin() + num_tokens * cols);
      EXPECT_EQ(Multiply(backend.get(), first, *packed, cols, rows),
                std::vector<float>(expected.begin(), expected.begin() + num_tokens * rows))
          << num_tokens << " tokens, " << num_threads << " threads";
    }
  }
}

TEST_P(QuantizedLinearTest, InfinitiesAndNansStayInTheirRowAndZerosGiveZeros) {
  const auto backend = MakeBackend();
  Random random(4);
  const int cols = 45, rows = 40, num_tokens = 14;
  std::vector<float> x = random.Normals(num_tokens * cols);
  x[2 * cols + 44] = NAN;
  x[7 * cols] = -INFINITY;
  std::fill_n(x.begin() + 9 * cols, cols, 0.0f);
  std::fill_n(x.begin() + 11 * cols, cols, 1e-38f);
  const Weights w = RandomWeights(&random, rows, cols);
  const auto packed = Pack(backend.get(), w);
  const std::vector<float> y = Multiply(backend.get(), x, *packed, cols, rows);
  const std::vector<float> expected = reference::QuantizedLinear(x, w.values, w.scales, cols);
  for (int i = 0; i < num_tokens * rows; ++i) {
    const int row = i / rows;
    if (row == 2 || row == 7) {
      EXPECT_TRUE(std::isnan(y[i])) << i;
    } else {
      EXPECT_EQ(y[i], expected[i]) << i;
    }
    if (row == 9 || row == 11) {
      EXPECT_EQ(y[i], 0) << i;
    }
  }
}

TEST_P(QuantizedLinearTest, AStackOfMatricesAddsBiasAndResidualInPlace) {
  const auto backend = MakeBackend();
  Random random(5);
  const int cols = 40, rows = 70;
  const Weights w = RandomWeights(&random, rows, cols);
  const QuantizedMatrixView parts[] = {w.View(0, 1), w.View(1, 50), w.View(51, rows - 51)};
  const auto packed = backend->PackQuantized(parts, 3);
  for (const int num_tokens : {1, 5, 37}) {
    const std::vector<float> x = random.Normals(num_tokens * cols), bias = random.Normals(rows);
    ExpectBiasAndResidualInPlace(backend.get(), x, *packed, bias, random.Normals(num_tokens * rows),
                                 reference::QuantizedLinear(x, w.values, w.scales, cols));
  }
}

TEST_P(QuantizedLinearTest, AGatedProductIsTheProductOfItsHalves) {
  const auto backend = MakeBackend();
  Random random(6);
  const int cols = 52, dim = 75, num_tokens = 9;
  Weights w = RandomWeights(&random, 2 * dim, cols);
  for (float& scale : w.scales) scale *= 0.003f;
  const std::vector<float> x = random.Normals(num_tokens * cols), bias = random.Normals(2 * dim);
  const auto packed = backend->PackGatedQuantized(w.View(0, dim), w.View(dim, dim));
  ExpectGatedProduct(backend.get(), x, *packed, dim, bias, reference::QuantizedLinear(x, w.values, w.scales, cols));
}

// Tiles have 16 rows and 64 columns, and a pass has two tiles. So all remainders occur here.
TEST_P(QuantizedLinearTest, EveryNumberOfRowsGivesTheSameBits) {
  const auto backend = MakeBackend();
  Random random(8);
  for (const int cols : {64, 257, 700}) {
    const int dim = 70;
    Weights w = RandomWeights(&random, 2 * dim, cols);
    for (float& scale : w.scales) scale *= 0.001f;
    const auto packed = Pack(backend.get(), w);
    const auto gated = backend->PackGatedQuantized(w.View(0, dim), w.View(dim, dim));
    const std::vector<float> x = random.Normals(70 * cols),
                             all = reference::QuantizedLinear(x, w.values, w.scales, cols);
    for (int num_tokens = 1; num_tokens <= 70; ++num_tokens) {
      const std::vector<float> first(x.begin(), x.begin() + num_tokens * cols);
      const std::vector<float> expected(all.begin(), all.begin() + num_tokens * 2 * dim);
      ASSERT_EQ(Bits(Multiply(backend.get(), first, *packed, cols, 2 * dim)), Bits(expected))
          << num_tokens << " tokens";
      ExpectGatedProduct(backend.get(), first, *gated, dim, /*bias=*/{}, expected);
    }
  }
}

// With AMX and many rows, a panel is divided into blocks of at most 1024 columns. Here are two equal blocks, and three
// of which the last one is shorter; one and two tiles in the last pass; and more rows than the kernel with blocks
// takes.
TEST_P(QuantizedLinearTest, BlocksOfColumnsGiveTheSameBits) {
  const auto backend = MakeBackend();
  Random random(9);
  for (const int cols : {1100, 2200}) {
    const int rows = 70, most_tokens = 100;
    const Weights w = RandomWeights(&random, rows, cols);
    const auto packed = Pack(backend.get(), w);
    const std::vector<float> x = random.Normals(most_tokens * cols),
                             all = reference::QuantizedLinear(x, w.values, w.scales, cols);
    for (const int num_tokens : {33, 48, 49, 64, most_tokens}) {
      const std::vector<float> first(x.begin(), x.begin() + num_tokens * cols);
      const std::vector<float> expected(all.begin(), all.begin() + num_tokens * rows);
      ASSERT_EQ(Bits(Multiply(backend.get(), first, *packed, cols, rows)), Bits(expected))
          << num_tokens << " x " << cols;
    }
  }
  const int cols = 20, rows = 33, num_tokens = 2100;
  const Weights w = RandomWeights(&random, rows, cols);
  const std::vector<float> x = random.Normals(num_tokens * cols);
  ASSERT_EQ(Bits(Multiply(backend.get(), x, *Pack(backend.get(), w), cols, rows)),
            Bits(reference::QuantizedLinear(x, w.values, w.scales, cols)));
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantizedLinearTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
