// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/reference/quantized.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

using reference::Fp8Matrix;

class Fp8LinearTest : public testing::TestWithParam<cpu::Isa> {
 protected:
  static std::unique_ptr<Backend> MakeBackend(int num_threads = 1) {
    return cpu::MakeCpuBackend(num_threads, GetParam());
  }
  static QuantizedMatrixView View(const Fp8Matrix& w, int first_row, int rows) {
    return {.values = &w.values[size_t(first_row) * w.cols],
            .scales = &w.scales[size_t(first_row) * w.num_groups()],
            .rows = rows,
            .cols = w.cols,
            .format = QuantizedFormat::kFp8,
            .group = w.group};
  }
  static std::unique_ptr<PackedMatrix> Pack(Backend* backend, const Fp8Matrix& w) {
    const QuantizedMatrixView view = View(w, 0, w.rows);
    return backend->PackQuantized(&view, 1);
  }
  // The scalar formula where products are of float32.
  static std::vector<float> Expected(Backend* backend, const std::vector<float>& x, const Fp8Matrix& w) {
    if (backend->InputType(*Pack(backend, w)) != DataType::kBFloat16) {
      return reference::Fp8Linear(x, w, /*is_fused=*/GetParam() != cpu::Isa::kGeneric);
    }
    std::vector<BFloat16> numbers;
    for (const int8_t number : w.values) numbers.push_back(ToBFloat16(reference::Fp8Value(uint8_t(number))));
    return SumOfGroups(backend, x, numbers, w.scales, w.cols, w.group);
  }
};

int8_t RandomNumber(Random* random) {
  const int magnitude = random->Int(0, 126);  // 127 is a NaN.
  return int8_t(uint8_t(magnitude | random->Int(0, 1) << 7));
}

Fp8Matrix RandomMatrix(Random* random, int rows, int cols, int group) {
  Fp8Matrix w = {.values = {}, .scales = {}, .rows = rows, .cols = cols, .group = group};
  w.values.resize(size_t(rows) * cols);
  for (int8_t& value : w.values) value = RandomNumber(random);
  w.scales = random->Normals(size_t(rows) * w.num_groups(), 0.01f);
  return w;
}

TEST_P(Fp8LinearTest, TheBackendWantsFp8WhereItIsNotSlower) {
  EXPECT_EQ(MakeBackend()->MultipliesFp8(), GetParam() != cpu::Isa::kGeneric && GetParam() != cpu::Isa::kAmx);
}

// Every number in every place of a line of four columns, in products that show it exactly.
TEST_P(Fp8LinearTest, EveryNumberIsConvertedExactly) {
  const auto backend = MakeBackend();
  const int rows = 64, cols = 256;
  Fp8Matrix w = {std::vector<int8_t>(rows * cols), std::vector<float>(rows, 1), rows, cols, cols};
  for (int i = 0; i < rows * cols; ++i) {
    const int bits = (i % cols + 5 * (i / cols)) % 256;
    w.values[i] = int8_t(uint8_t(bits % 128 == 127 ? 0 : bits));
  }
  const auto packed = Pack(backend.get(), w);
  for (const int num_tokens : {4, 256}) {
    for (int first = 0; first < cols; first += num_tokens) {
      std::vector<float> x(size_t(num_tokens) * cols);
      for (int token = 0; token < num_tokens; ++token) x[size_t(token) * cols + first + token] = 1;
      const std::vector<float> y = Multiply(backend.get(), x, *packed, cols, rows);
      for (int i = 0; i < num_tokens * rows; ++i) {
        const int k = first + i / rows, n = i % rows;
        ASSERT_EQ(y[i], reference::Fp8Value(uint8_t(w.values[n * cols + k]))) << "row " << n << ", column " << k;
      }
    }
  }
}

TEST_P(Fp8LinearTest, BitsAreThoseOfTheFormula) {
  const auto backend = MakeBackend();
  Random random(1);
  for (int i = 0; i < 45; ++i) {
    const int num_tokens = i < 30 ? i + 1 : random.Int(1, 100), cols = random.Int(1, 300), rows = random.Int(1, 200);
    const std::vector<float> x = random.Normals(size_t(num_tokens) * cols, i % 5 == 0 ? 1e-6f : 3);
    const int group = i % 4 == 3 ? (cols + 31) / 32 * 32 : 32 << i % 4;
    const Fp8Matrix w = RandomMatrix(&random, rows, cols, group);
    const auto packed = Pack(backend.get(), w);
    ASSERT_EQ(Bits(Multiply(backend.get(), x, *packed, cols, rows)), Bits(Expected(backend.get(), x, w)))
        << num_tokens << " x " << cols << " x " << rows << " in groups of " << w.group;
  }
}

TEST_P(Fp8LinearTest, ARowDoesNotDependOnItsCompanyOrTheThreads) {
  Random random(3);
  const int cols = 165, rows = 130, max_tokens = 205;
  const std::vector<float> x = random.Normals(size_t(max_tokens) * cols);
  for (const int group : {64, 192}) {
    const Fp8Matrix w = RandomMatrix(&random, rows, cols, group);
    const std::vector<float> expected = Expected(MakeBackend().get(), x, w);
    for (const int num_threads : {1, 3}) {
      const auto backend = MakeBackend(num_threads);
      const auto packed = Pack(backend.get(), w);
      for (const int num_tokens : {1, 2, 3, 7, 12, 13, 25, 64, max_tokens}) {
        const std::vector<float> first(x.begin(), x.begin() + num_tokens * cols);
        EXPECT_EQ(Multiply(backend.get(), first, *packed, cols, rows),
                  std::vector<float>(expected.begin(), expected.begin() + num_tokens * rows))
            << num_tokens << " tokens, " << num_threads << " threads, groups of " << group;
      }
    }
  }
}

TEST_P(Fp8LinearTest, InfinitiesAndNansStayInTheirRowAndZerosGiveZeros) {
  const auto backend = MakeBackend();
  Random random(4);
  const int cols = 300, rows = 40, num_tokens = 14;
  std::vector<float> x = random.Normals(num_tokens * cols);
  x[2 * cols + 299] = NAN;
  x[7 * cols] = -INFINITY;
  std::fill_n(x.begin() + 9 * cols, cols, 0.0f);
  Fp8Matrix w = RandomMatrix(&random, rows, cols, 128);
  // An infinity times 0 would be a NaN anyway.
  const std::vector<float> y = Multiply(backend.get(), x, *Pack(backend.get(), w), cols, rows);
  const std::vector<float> expected = Expected(backend.get(), x, w);
  for (int i = 0; i < num_tokens * rows; ++i) {
    const int row = i / rows;
    if (row == 2 || row == 7) {
      EXPECT_FALSE(std::isfinite(y[i])) << i;
    } else {
      EXPECT_EQ(y[i], row == 9 ? 0 : expected[i]) << i;
    }
  }
}

TEST_P(Fp8LinearTest, AStackOfMatricesAddsBiasAndResidualInPlace) {
  const auto backend = MakeBackend();
  Random random(5);
  const int cols = 140, rows = 70;
  const Fp8Matrix w = RandomMatrix(&random, rows, cols, 32);
  const QuantizedMatrixView parts[] = {View(w, 0, 1), View(w, 1, 50), View(w, 51, rows - 51)};
  const auto packed = backend->PackQuantized(parts, 3);
  for (const int num_tokens : {1, 5, 37}) {
    const std::vector<float> x = random.Normals(num_tokens * cols), bias = random.Normals(rows);
    ExpectBiasAndResidualInPlace(backend.get(), x, *packed, bias, random.Normals(num_tokens * rows),
                                 Expected(backend.get(), x, w));
  }
}

TEST_P(Fp8LinearTest, AGatedProductIsTheProductOfItsHalves) {
  const auto backend = MakeBackend();
  Random random(6);
  const int cols = 152, dim = 75;
  Fp8Matrix w = RandomMatrix(&random, 2 * dim, cols, 64);
  for (float& scale : w.scales) scale *= 0.05f;
  const auto packed = backend->PackGatedQuantized(View(w, 0, dim), View(w, dim, dim));
  for (const int num_tokens : {9, 30}) {
    const std::vector<float> x = random.Normals(num_tokens * cols);
    ExpectGatedProduct(backend.get(), x, *packed, dim, /*bias=*/{}, Expected(backend.get(), x, w));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Fp8LinearTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
