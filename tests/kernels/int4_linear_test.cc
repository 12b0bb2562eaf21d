// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "kernels/reference/quantized.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

using reference::Int4Matrix;

struct Int4Param {
  cpu::Isa isa;
  QuantizedFormat format;

  bool RoundsInputs() const { return format == QuantizedFormat::kInt4; }
  const char* Name() const {
    return RoundsInputs() ? "rounded" : format == QuantizedFormat::kInt4BFloat16 ? "bfloat16" : "float32";
  }
};

class Int4LinearTest : public testing::TestWithParam<Int4Param> {
 protected:
  static std::unique_ptr<Backend> MakeBackend(int num_threads = 1) {
    return cpu::MakeCpuBackend(num_threads, GetParam().isa);
  }
  static QuantizedMatrixView View(const Int4Matrix& w, int first_row, int rows) {
    const size_t group = size_t(first_row) * w.num_groups();
    return {.values = &w.values[size_t(first_row) * w.cols],
            .scales = &w.scales[group],
            .rows = rows,
            .cols = w.cols,
            .format = GetParam().format,
            .group = w.group,
            .zeros = &w.zeros[group]};
  }
  static std::unique_ptr<PackedMatrix> Pack(Backend* backend, const Int4Matrix& w) {
    const QuantizedMatrixView view = View(w, 0, w.rows);
    return backend->PackQuantized(&view, 1);
  }
  // Returns the matrix of bfloat16 that has the same weights.
  static std::unique_ptr<PackedMatrix> PackAsBFloat16(Backend* backend, const Int4Matrix& w) {
    const std::vector<BFloat16> weights = reference::Int4AsBFloat16(w);
    const MatrixView view = {weights.data(), w.rows, w.cols, DataType::kBFloat16, w.num_slices};
    return backend->Pack(&view, 1);
  }
  // The whole numbers whose products are summed.
  static std::vector<BFloat16> Numbers(const Int4Matrix& w) {
    std::vector<BFloat16> numbers;
    for (size_t i = 0; i < w.values.size(); ++i) {
      const size_t row = i / size_t(w.cols), group = i % size_t(w.cols) / size_t(w.group);
      numbers.push_back(ToBFloat16(float(w.values[i] - w.zeros[row * size_t(w.num_groups()) + group])));
    }
    return numbers;
  }
  static std::vector<float> Expected(const std::vector<float>& x, const Int4Matrix& w) {
    if (GetParam().RoundsInputs()) return reference::Int4Linear(x, w);
    const auto backend = MakeBackend();
    if (backend->InputType(*Pack(backend.get(), w)) != DataType::kBFloat16) {
      return reference::Int4FloatLinear(x, w, /*is_fused=*/GetParam().isa != cpu::Isa::kGeneric);
    }
    if (GetParam().isa == cpu::Isa::kAmx) {
      return Multiply(backend.get(), x, *PackAsBFloat16(backend.get(), w), w.cols, w.rows);
    }
    return SumOfGroups(backend.get(), x, Numbers(w), w.scales, w.cols, w.group);
  }
};

Int4Matrix RandomMatrix(Random* random, int rows, int cols, int group) {
  Int4Matrix w = {.values = {}, .scales = {}, .zeros = {}, .rows = rows, .cols = cols, .group = group};
  w.values.resize(size_t(rows) * cols);
  for (int8_t& value : w.values) value = int8_t(random->Int(0, 15));
  w.scales = random->Normals(size_t(rows) * w.num_groups());
  w.zeros.resize(w.scales.size());
  for (uint8_t& zero : w.zeros) zero = uint8_t(random->Int(0, 16));
  return w;
}

TEST_P(Int4LinearTest, BitsAreThoseOfTheScalarFormula) {
  const auto backend = MakeBackend();
  Random random(1);
  for (int i = 0; i < 45; ++i) {
    const int num_tokens = i < 30 ? i + 1 : random.Int(1, 100), cols = random.Int(1, 300), rows = random.Int(1, 200);
    const std::vector<float> x = random.Normals(size_t(num_tokens) * cols, i % 5 == 0 ? 1e-6f : 3);
    const Int4Matrix w = RandomMatrix(&random, rows, cols, kMinInt4Group << i % 3);
    const auto packed = Pack(backend.get(), w);
    ASSERT_EQ(Bits(Multiply(backend.get(), x, *packed, cols, rows)), Bits(Expected(x, w)))
        << num_tokens << " x " << cols << " x " << rows << " in groups of " << w.group;
  }
}

// With weights and inputs that are small whole numbers of powers of two, the sums are exact in every order. So this is
// a scalar formula for products of bfloat16.
TEST_P(Int4LinearTest, ExactSumsAreThoseOfTheFormula) {
  if (GetParam().RoundsInputs()) GTEST_SKIP() << "Rounds inputs.";
  const auto backend = MakeBackend();
  Random random(10);
  for (const int num_tokens : {1, 2, 16, 17, 32, 33, 50}) {
    for (const int group : {32, 64, 128}) {
      const int cols = 2 * group + 33, rows = 40;
      Int4Matrix w = RandomMatrix(&random, rows, cols, group);
      for (float& scale : w.scales) scale = std::ldexp(random.Int(0, 1) == 0 ? 1.0f : -1.0f, random.Int(-2, 2));
      std::vector<float> x, expected;
      for (int i = 0; i < num_tokens * cols; ++i) x.push_back(float(random.Int(-9, 9)));
      for (int token = 0; token < num_tokens; ++token) {
        for (int n = 0; n < rows; ++n) {
          double sum = 0;
          for (int k = 0; k < cols; ++k) {
            const size_t at = size_t(n) * w.num_groups() + k / group;
            sum += double{x[token * cols + k]} * (w.values[n * cols + k] - w.zeros[at]) * w.scales[at];
          }
          expected.push_back(float(sum));
        }
      }
      EXPECT_EQ(Multiply(backend.get(), x, *Pack(backend.get(), w), cols, rows), expected)
          << num_tokens << " tokens in groups of " << group;
    }
  }
}

// Inputs of zero follow the last column. A weight there may be infinite after its scale, and must not matter.
TEST_P(Int4LinearTest, PaddingDoesNotMatter) {
  if (GetParam().RoundsInputs()) GTEST_SKIP() << "Rounds inputs.";
  const auto backend = MakeBackend();
  for (const int cols : {33, 65, 100}) {
    for (const int num_tokens : {1, 3, 40}) {
      const Int4Matrix w = {std::vector<int8_t>(cols, 15), {3e37f}, {15}, 1, cols, 128};
      const std::vector<float> x(size_t(num_tokens) * cols, 1);
      EXPECT_EQ(Multiply(backend.get(), x, *Pack(backend.get(), w), cols, 1), std::vector<float>(num_tokens, 0));
    }
  }
}

// The largest sums of a group. A step that saturates or overflows would show.
TEST_P(Int4LinearTest, ExtremeSumsAreExact) {
  const auto backend = MakeBackend();
  const int rows = 33;
  for (const int group : {32, 64, 128}) {
    for (const int8_t value : {int8_t{0}, int8_t{15}}) {
      for (const float sign : {1.0f, -1.0f}) {
        const int cols = 3 * group;
        const std::vector<float> x(13 * size_t(cols), 2 * sign);
        Int4Matrix w = {std::vector<int8_t>(size_t(rows) * cols, value), {}, {}, rows, cols, group};
        w.scales.assign(3 * rows, 1);
        for (const int zero : {0, 16}) {
          w.zeros.assign(3 * rows, uint8_t(zero));
          const auto packed = Pack(backend.get(), w);
          EXPECT_EQ(Multiply(backend.get(), x, *packed, cols, rows), Expected(x, w))
              << "groups of " << group << ", " << int(value) << " - " << zero;
        }
      }
    }
  }
}

TEST_P(Int4LinearTest, ARowDoesNotDependOnItsCompanyOrTheThreads) {
  Random random(3);
  const int cols = 165, rows = 130, max_tokens = 205;
  const std::vector<float> x = random.Normals(size_t(max_tokens) * cols);
  const Int4Matrix w = RandomMatrix(&random, rows, cols, 64);
  const std::vector<float> expected = Expected(x, w);
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

TEST_P(Int4LinearTest, InfinitiesAndNansStayInTheirRowAndZerosGiveZeros) {
  const auto backend = MakeBackend();
  Random random(4);
  const int cols = 300, rows = 40, num_tokens = 14;
  std::vector<float> x = random.Normals(num_tokens * cols);
  x[2 * cols + 299] = NAN;
  x[7 * cols] = -INFINITY;
  std::fill_n(x.begin() + 9 * cols, cols, 0.0f);
  const Int4Matrix w = RandomMatrix(&random, rows, cols, 128);
  const std::vector<float> y = Multiply(backend.get(), x, *Pack(backend.get(), w), cols, rows);
  const std::vector<float> expected = Expected(x, w);
  for (int i = 0; i < num_tokens * rows; ++i) {
    const int row = i / rows;
    if (row == 2 || row == 7) {
      EXPECT_FALSE(std::isfinite(y[i])) << i;
    } else {
      EXPECT_EQ(y[i], row == 9 ? 0 : expected[i]) << i;
    }
  }
}

TEST_P(Int4LinearTest, AStackOfMatricesAddsBiasAndResidualInPlace) {
  const auto backend = MakeBackend();
  Random random(5);
  const int cols = 140, rows = 70;
  const Int4Matrix w = RandomMatrix(&random, rows, cols, 32);
  const QuantizedMatrixView parts[] = {View(w, 0, 1), View(w, 1, 50), View(w, 51, rows - 51)};
  const auto packed = backend->PackQuantized(parts, 3);
  for (const int num_tokens : {1, 5, 37}) {
    const std::vector<float> x = random.Normals(num_tokens * cols), bias = random.Normals(rows);
    ExpectBiasAndResidualInPlace(backend.get(), x, *packed, bias, random.Normals(num_tokens * rows), Expected(x, w));
  }
}

TEST_P(Int4LinearTest, ColumnsMultiplyTheElementsThatTheirOrderNames) {
  Random random(7);
  const int cols = 100, rows = 40, num_tokens = 21;
  const Int4Matrix w = RandomMatrix(&random, rows, cols, 32);
  std::vector<int32_t> order;
  for (int k = 0; k < cols; ++k) order.push_back(k * 37 % cols);
  const std::vector<float> x = random.Normals(num_tokens * cols);
  std::vector<float> ordered;
  for (int i = 0; i < num_tokens * cols; ++i) ordered.push_back(x[i / cols * cols + order[i % cols]]);
  const auto backend = MakeBackend();
  QuantizedMatrixView view = View(w, 0, rows);
  view.order = order.data();
  EXPECT_EQ(Multiply(backend.get(), x, *backend->PackQuantized(&view, 1), cols, rows), Expected(ordered, w));
}

TEST_P(Int4LinearTest, AGatedProductIsTheProductOfItsHalves) {
  const auto backend = MakeBackend();
  Random random(6);
  const int cols = 152, dim = 75, num_tokens = 9;
  Int4Matrix w = RandomMatrix(&random, 2 * dim, cols, 64);
  for (float& scale : w.scales) scale *= 0.03f;
  const std::vector<float> x = random.Normals(num_tokens * cols);
  const auto packed = backend->PackGatedQuantized(View(w, 0, dim), View(w, dim, dim));
  ExpectGatedProduct(backend.get(), x, *packed, dim, /*bias=*/{}, Expected(x, w));
}

// Tiles have 16 rows, a pass has two tiles, and the sums of up to four groups are combined at once. So all remainders
// occur here.
TEST_P(Int4LinearTest, EveryNumberOfRowsGivesTheSameBits) {
  const auto backend = MakeBackend();
  Random random(8);
  for (const int group : {32, 64, 128}) {
    const int cols = 9 * group - 13, dim = 36;
    Int4Matrix w = RandomMatrix(&random, 2 * dim, cols, group);
    for (float& scale : w.scales) scale *= 0.01f;
    const auto packed = Pack(backend.get(), w);
    const auto gated = backend->PackGatedQuantized(View(w, 0, dim), View(w, dim, dim));
    const std::vector<float> x = random.Normals(70 * cols), all = Expected(x, w);
    for (int num_tokens = 1; num_tokens <= 70; ++num_tokens) {
      const std::vector<float> first(x.begin(), x.begin() + num_tokens * cols);
      const std::vector<float> expected(all.begin(), all.begin() + num_tokens * 2 * dim);
      ASSERT_EQ(Bits(Multiply(backend.get(), first, *packed, cols, 2 * dim)), Bits(expected))
          << num_tokens << " tokens in groups of " << group;
      ExpectGatedProduct(backend.get(), first, *gated, dim, /*bias=*/{}, expected);
    }
  }
}

// These rows and columns are divided into several items and several blocks of columns, whose last ones are smaller.
TEST_P(Int4LinearTest, ManyRowsAndColumnsGiveTheSameBits) {
  const auto backend = MakeBackend(/*num_threads=*/2);
  Random random(9);
  for (const int group : {32, 64, 128}) {
    for (const auto& [num_tokens, cols, rows] : {std::tuple{541, 1100, 70}, std::tuple{35, 70000, 3}}) {
      const Int4Matrix w = RandomMatrix(&random, rows, cols, group);
      const std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
      ASSERT_EQ(Bits(Multiply(backend.get(), x, *Pack(backend.get(), w), cols, rows)), Bits(Expected(x, w)))
          << num_tokens << " x " << cols << " x " << rows << " in groups of " << group;
    }
  }
}

std::vector<Int4Param> Params() {
  std::vector<Int4Param> params;
  for (const cpu::Isa isa : TestedIsas()) {
    params.push_back({isa, QuantizedFormat::kInt4});
    params.push_back({isa, QuantizedFormat::kInt4Float32});
    params.push_back({isa, QuantizedFormat::kInt4BFloat16});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Isas, Int4LinearTest, testing::ValuesIn(Params()), [](const auto& info) {
  return std::string(cpu::Name(info.param.isa)) + "_" + info.param.Name();
});

}  // namespace
}  // namespace quire
