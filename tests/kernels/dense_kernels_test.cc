// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <utility>

#include "kernels/cpu/table/kernel_table.h"
#include "kernels/reference/dense.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

using DenseKernelsTest = CpuBackendTest;

std::unique_ptr<PackedMatrix> Pack(Backend* backend, const std::vector<float>& w, int cols, DataType type,
                                   int num_slices = 1) {
  const std::vector<char> bytes = Encoded(w, type);
  const MatrixView view = {
      .data = bytes.data(), .rows = int(w.size()) / cols, .cols = cols, .type = type, .num_slices = num_slices};
  return backend->Pack(&view, 1);
}

std::unique_ptr<PackedMatrix> PackGated(Backend* backend, const std::vector<float>& w, int cols, DataType type) {
  const std::vector<char> bytes = Encoded(w, type);
  const int dim = int(w.size()) / cols / 2;
  const MatrixView gate = {.data = bytes.data(), .rows = dim, .cols = cols, .type = type};
  MatrixView up = gate;
  up.data = bytes.data() + bytes.size() / 2;
  return backend->PackGated(gate, up);
}

// Returns the gated product as float32, or rounded to `y_type` and widened.
std::vector<float> MultiplyGated(Backend* backend, const std::vector<float>& x, const PackedMatrix& w, int cols,
                                 int dim, const float* bias = nullptr, DataType y_type = DataType::kFloat32,
                                 Activation activation = Activation::kSilu) {
  const int num_tokens = int(x.size()) / cols;
  const std::vector<char> input = Encoded(x, backend->InputType(w));
  std::vector<char> y(size_t(num_tokens) * dim * SizeOf(y_type), char(0xff));
  backend->GatedLinear({.x = input.data(),
                        .w = &w,
                        .bias = bias,
                        .y = y.data(),
                        .y_type = y_type,
                        .num_tokens = num_tokens,
                        .activation = activation});
  return Decoded(y, y_type);
}

// Returns the input after the rounding that a product by weights of `type` applies.
std::vector<float> SeenInput(cpu::Isa isa, DataType type, const std::vector<float>& x) {
  return Rounded(x, cpu::KernelsFor(isa).linear_input[int(type)]);
}

TEST_P(DenseKernelsTest, LinearAgreesWithTheReference) {
  const auto backend = MakeBackend();
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    const DataType type = kAllTypes[i % 3];
    const int num_tokens = i < 30 ? i + 1 : random.Int(1, 230), cols = random.Int(1, 150), rows = random.Int(1, 300);
    const std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
    const std::vector<float> w = random.Normals(size_t(rows) * cols);
    const auto packed = Pack(backend.get(), w, cols, type);
    const std::vector<double> seen = Doubles(SeenInput(GetParam(), type, x));
    EXPECT_LT(RelativeError(Multiply(backend.get(), x, *packed, cols, rows),
                            reference::Linear(seen, Doubles(Rounded(w, type)), cols)),
              2e-6)
        << num_tokens << " x " << cols << " x " << rows << " " << Name(type);
  }
}

TEST_P(DenseKernelsTest, LinearScalesThenCapsThenAddsTheResidual) {
  const auto backend = MakeBackend();
  Random random(21);
  const int num_tokens = 5, cols = 40, rows = 70;
  const float scale = 0.3f, cap = 1.5f;
  const std::vector<float> x = random.Normals(num_tokens * cols), w = random.Normals(rows * cols);
  const std::vector<float> bias = random.Normals(rows), residual = random.Normals(num_tokens * rows);
  const auto packed = Pack(backend.get(), w, cols, DataType::kFloat32);
  const std::vector<double> products = reference::Linear(Doubles(x), Doubles(w), cols);
  std::vector<double> scaled, capped;
  for (size_t i = 0; i < products.size(); ++i) {
    const double value = scale * (products[i] + bias[i % rows]);
    scaled.push_back(value + residual[i]);
    capped.push_back(reference::Softcap(value, cap) + residual[i]);
  }
  std::vector<float> y(num_tokens * rows);
  LinearArgs args = {.x = x.data(),
                     .w = packed.get(),
                     .bias = bias.data(),
                     .residual = residual.data(),
                     .y = y.data(),
                     .num_tokens = num_tokens};
  args.scale = scale;
  backend->Linear(args);
  EXPECT_LT(RelativeError(y, scaled), 1e-6);
  args.softcap = cap;
  backend->Linear(args);
  EXPECT_LT(RelativeError(y, capped), 1e-6);
}

// A product by 1 with a cap of 1 is the tangent itself.
TEST_P(DenseKernelsTest, TheTangentIsAccurateEverywhere) {
  const auto backend = MakeBackend();
  std::vector<float> x = {0, -0.0f, 1e-30f, 200, -200, INFINITY, -INFINITY};
  for (float value = 1e-6f; value < 12; value *= 1.01f) x.insert(x.end(), {value, -value});
  const auto packed = Pack(backend.get(), {1}, 1, DataType::kFloat32);
  std::vector<float> y(x.size());
  LinearArgs args = {.x = x.data(),
                     .w = packed.get(),
                     .bias = nullptr,
                     .residual = nullptr,
                     .y = y.data(),
                     .num_tokens = int(x.size())};
  args.softcap = 1;
  backend->Linear(args);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::tanh(double(x[i]));
    EXPECT_NEAR(y[i], expected, 3 * 0x1p-24 * std::abs(expected) * 2) << x[i];
  }
  const float nan = NAN;
  args.x = &nan;
  args.num_tokens = 1;
  backend->Linear(args);
  EXPECT_TRUE(std::isnan(y[0]));
}

// Compares each element's error with the size of its terms: the bound of a float32 sum in any order is cols * 6e-8.
TEST_P(DenseKernelsTest, EveryElementOfALongProductIsNearTheReference) {
  const auto backend = MakeBackend();
  Random random(11);
  const int cols = 2085, rows = 75;
  const std::vector<float> w = Rounded(random.Normals(size_t(rows) * cols), DataType::kBFloat16);
  const auto packed = Pack(backend.get(), w, cols, DataType::kBFloat16);
  for (const int num_tokens : {1, 16, 17, 33, 70}) {
    const std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
    std::vector<double> seen = Doubles(SeenInput(GetParam(), DataType::kBFloat16, x)), weights = Doubles(w);
    const std::vector<double> expected = reference::Linear(seen, weights, cols);
    for (double& value : seen) value = std::abs(value);
    for (double& value : weights) value = std::abs(value);
    const std::vector<double> size = reference::Linear(seen, weights, cols);
    const std::vector<float> y = Multiply(backend.get(), x, *packed, cols, rows);
    double worst = 0;
    for (size_t i = 0; i < y.size(); ++i) worst = std::max(worst, std::abs(y[i] - expected[i]) / size[i]);
    EXPECT_LT(worst, 1e-6) << num_tokens << " tokens";
  }
}

// Infinities and NaNs stay in their row, although a tile holds several rows.
TEST_P(DenseKernelsTest, ARowWithNanLeavesTheOthersAlone) {
  const auto backend = MakeBackend();
  Random random(12);
  const int cols = 45, rows = 40, num_tokens = 37;
  const std::vector<float> w = random.Normals(rows * cols);
  std::vector<float> x = random.Normals(num_tokens * cols);
  const auto packed = Pack(backend.get(), w, cols, DataType::kBFloat16);
  const std::vector<float> before = Multiply(backend.get(), x, *packed, cols, rows);
  for (const int row : {0, 15, 36}) x[row * cols + cols - 1] = row == 15 ? INFINITY : NAN;
  const std::vector<float> y = Multiply(backend.get(), x, *packed, cols, rows);
  for (int i = 0; i < num_tokens * rows; ++i) {
    const int row = i / rows;
    if (row == 0 || row == 15 || row == 36) {
      EXPECT_FALSE(std::isfinite(y[i])) << i;
    } else {
      EXPECT_EQ(y[i], before[i]) << i;
    }
  }
}

TEST_P(DenseKernelsTest, LinearAddsBiasAndResidualEvenInPlace) {
  const auto backend = MakeBackend();
  Random random(2);
  const int cols = 40, rows = 70;
  for (const DataType type : kAllTypes) {
    for (const int num_tokens : {5, 17, 37}) {
      const std::vector<float> x = Rounded(random.Normals(num_tokens * cols), type);
      const std::vector<float> w = Rounded(random.Normals(rows * cols), type);
      const std::vector<float> bias = random.Normals(rows), residual = random.Normals(num_tokens * rows);
      const auto packed = Pack(backend.get(), w, cols, type);
      std::vector<double> expected = reference::Linear(Doubles(x), Doubles(w), cols);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % rows] + residual[i];
      const std::vector<char> input = Encoded(x, backend->InputType(*packed));
      std::vector<float> y = residual;
      backend->Linear({.x = input.data(),
                       .w = packed.get(),
                       .bias = bias.data(),
                       .residual = y.data(),
                       .y = y.data(),
                       .num_tokens = num_tokens});
      EXPECT_LT(RelativeError(y, expected), 1e-6) << num_tokens << " tokens, " << Name(type);
    }
  }
}

TEST_P(DenseKernelsTest, ARowOfLinearDoesNotDependOnItsCompanyOrTheThreads) {
  Random random(3);
  const int cols = 67, rows = 130, max_tokens = 205;
  const std::vector<float> x = random.Normals(size_t(max_tokens) * cols), w = random.Normals(size_t(rows) * cols);
  for (const DataType type : kAllTypes) {
    std::vector<float> alone;
    const auto one_thread = MakeBackend(1);
    const auto packed = Pack(one_thread.get(), w, cols, type);
    for (int t = 0; t < max_tokens; ++t) {
      const std::vector<float> row(x.begin() + t * cols, x.begin() + (t + 1) * cols);
      const std::vector<float> y = Multiply(one_thread.get(), row, *packed, cols, rows);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const int num_threads : {1, 3}) {
      const auto backend = MakeBackend(num_threads);
      for (int n = 1; n <= max_tokens; n = n < 50 ? n + 1 : n + 25) {
        const std::vector<float> y = Multiply(backend.get(), {x.begin(), x.begin() + n * cols}, *packed, cols, rows);
        EXPECT_TRUE(std::equal(y.begin(), y.end(), alone.begin())) << n << " rows, " << Name(type);
      }
    }
  }
}

TEST(DenseIsaTest, InstructionSetsWithFusedMultiplyAddAgree) {
  std::vector<cpu::Isa> isas = cpu::SupportedIsas();
  std::erase(isas, cpu::Isa::kGeneric);
  if (isas.size() < 2) GTEST_SKIP() << "one instruction set with fused multiply-add, or none";
  Random random(4);
  const int cols = 203, rows = 100;
  const std::vector<float> x = random.Normals(17 * cols, 3), w = random.Normals(size_t(rows) * cols);
  std::vector<std::vector<float>> results[2];
  for (int i = 0; i < 2; ++i) {
    const auto backend = cpu::MakeCpuBackend(2, isas[i]);
    for (const DataType type : kAllTypes) {
      results[i].push_back(Multiply(backend.get(), x, *Pack(backend.get(), w, cols, type), cols, rows));
    }
    std::vector<float> norm(x.size());
    backend->RmsNorm(
        {.x = x.data(), .weight = w.data(), .y = norm.data(), .num_rows = 17, .dim = cols, .epsilon = 1e-5f});
    const auto gated = PackGated(backend.get(), w, cols, DataType::kFloat32);
    results[i].push_back(norm);
    results[i].push_back(MultiplyGated(backend.get(), x, *gated, cols, rows / 2));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(DenseKernelsTest, PackStacksMatricesInRowOrder) {
  const auto backend = MakeBackend();
  Random random(5);
  const int cols = 24;
  std::vector<float> stacked;
  std::vector<std::vector<float>> parts;
  for (const int rows : {33, 5, 64}) {
    parts.push_back(Rounded(random.Normals(rows * cols), DataType::kFloat16));
    stacked.insert(stacked.end(), parts.back().begin(), parts.back().end());
  }
  // The types differ, so the stack is float32.
  std::vector<std::vector<char>> bytes;
  std::vector<MatrixView> views;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DataType type = i == 1 ? DataType::kFloat32 : DataType::kFloat16;
    bytes.push_back(Encoded(parts[i], type));
    views.push_back({bytes[i].data(), int(parts[i].size()) / cols, cols, type});
  }
  const auto packed = backend->Pack(views.data(), 3);
  const std::vector<float> x = random.Normals(3 * cols);
  EXPECT_EQ(Multiply(backend.get(), x, *packed, cols, 102),
            Multiply(backend.get(), x, *Pack(backend.get(), stacked, cols, DataType::kFloat32), cols, 102));
}

TEST_P(DenseKernelsTest, EmbedReadsRowsOfThePackedMatrix) {
  const auto backend = MakeBackend();
  Random random(6);
  const int vocab_size = 75, dim = 21;
  for (const DataType type : kAllTypes) {
    const std::vector<float> table = Rounded(random.Normals(vocab_size * dim), type);
    const auto packed = Pack(backend.get(), table, dim, type);
    const std::vector<int32_t> tokens = {74, 0, 31, 32, 33, 0};
    std::vector<float> y(tokens.size() * dim, NAN), expected;
    backend->Embed(*packed, tokens.data(), int(tokens.size()), /*scale=*/1, y.data());
    for (const int32_t token : tokens) {
      expected.insert(expected.end(), table.begin() + token * dim, table.begin() + (token + 1) * dim);
    }
    EXPECT_EQ(y, expected) << Name(type);
  }
}

TEST_P(DenseKernelsTest, EmbedMultipliesByItsScale) {
  const auto backend = MakeBackend();
  Random random(22);
  const std::vector<float> table = random.Normals(5 * 21);
  const auto packed = Pack(backend.get(), table, 21, DataType::kFloat32);
  const std::vector<int32_t> tokens = {4, 0};
  std::vector<float> y(2 * 21), expected;
  backend->Embed(*packed, tokens.data(), 2, /*scale=*/2.5f, y.data());
  for (const int32_t token : tokens) {
    for (int i = 0; i < 21; ++i) expected.push_back(table[token * 21 + i] * 2.5f);
  }
  EXPECT_EQ(y, expected);
}

TEST_P(DenseKernelsTest, GatedLinearAgreesWithTheReference) {
  const auto backend = MakeBackend();
  Random random(8);
  for (int i = 0; i < 45; ++i) {
    const DataType type = kAllTypes[i % 3];
    const int num_tokens = i < 30 ? i + 1 : random.Int(1, 150), cols = random.Int(1, 150), dim = random.Int(1, 150);
    const std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
    const std::vector<float> w = random.Normals(size_t(2 * dim) * cols, 0.2f), bias = random.Normals(2 * dim);
    const auto packed = PackGated(backend.get(), w, cols, type);
    std::vector<double> wide =
        reference::Linear(Doubles(SeenInput(GetParam(), type, x)), Doubles(Rounded(w, type)), cols);
    EXPECT_LT(RelativeError(MultiplyGated(backend.get(), x, *packed, cols, dim), reference::SiluMul(wide, dim)), 2e-6)
        << num_tokens << " x " << cols << " x " << dim << " " << Name(type);
    for (size_t j = 0; j < wide.size(); ++j) wide[j] += bias[j % (2 * dim)];
    const std::vector<float> biased = MultiplyGated(backend.get(), x, *packed, cols, dim, bias.data());
    EXPECT_LT(RelativeError(biased, reference::SiluMul(wide, dim)), 2e-6)
        << num_tokens << " x " << cols << " x " << dim << " with bias " << Name(type);
    EXPECT_EQ(MultiplyGated(backend.get(), x, *packed, cols, dim, bias.data(), DataType::kBFloat16),
              Rounded(biased, DataType::kBFloat16));
    const std::vector<float> gelu =
        MultiplyGated(backend.get(), x, *packed, cols, dim, bias.data(), DataType::kFloat32, Activation::kGeluTanh);
    EXPECT_LT(RelativeError(gelu, reference::GeluTanhMul(wide, dim)), 2e-6)
        << num_tokens << " x " << cols << " x " << dim << " with gelu_tanh " << Name(type);
    // About every third sum is beyond the limits of the clamped gate.
    const std::vector<float> wide_bias = random.Normals(2 * dim, 7);
    for (size_t j = 0; j < wide.size(); ++j) {
      wide[j] += double{wide_bias[j % (2 * dim)]} - double{bias[j % (2 * dim)]};
    }
    const std::vector<float> clamped = MultiplyGated(backend.get(), x, *packed, cols, dim, wide_bias.data(),
                                                     DataType::kFloat32, Activation::kClampedSwiglu);
    EXPECT_LT(RelativeError(clamped, reference::ClampedSwiglu(wide, dim)), 2e-6)
        << num_tokens << " x " << cols << " x " << dim << " clamped " << Name(type);
  }
}

// silu(a) is close to a for large a, close to 0 for large negative a, and NaN for NaN.
TEST_P(DenseKernelsTest, GatedLinearTakesExtremeGates) {
  const auto backend = MakeBackend();
  for (const DataType type : kAllTypes) {
    const auto packed = PackGated(backend.get(), {1, 1, 2, 2}, 1, type);
    const std::vector<float> y = MultiplyGated(backend.get(), {200, -200, 0, NAN}, *packed, 1, 2);
    EXPECT_LT(RelativeError({y.begin(), y.begin() + 6}, {80000, 80000, 0, 0, 0, 0}), 1e-30);
    EXPECT_TRUE(std::isnan(y[6]) && std::isnan(y[7]));
    const std::vector<float> gelu = MultiplyGated(backend.get(), {200, -200, 0, NAN}, *packed, 1, 2, nullptr,
                                                  DataType::kFloat32, Activation::kGeluTanh);
    EXPECT_LT(RelativeError({gelu.begin(), gelu.begin() + 6}, {80000, 80000, 0, 0, 0, 0}), 1e-30);
    EXPECT_TRUE(std::isnan(gelu[6]) && std::isnan(gelu[7]));
    const std::vector<float> clamped = MultiplyGated(backend.get(), {200, -200, 0, NAN}, *packed, 1, 2, nullptr,
                                                     DataType::kFloat32, Activation::kClampedSwiglu);
    EXPECT_LT(RelativeError({clamped.begin(), clamped.begin() + 6}, {56, 56, 0, 0, 0, 0}), 1e-4);
    EXPECT_TRUE(std::isnan(clamped[6]) && std::isnan(clamped[7]));
  }
}

TEST_P(DenseKernelsTest, ARowOfGatedLinearDoesNotDependOnItsCompanyOrTheThreads) {
  Random random(14);
  const int cols = 67, dim = 70, max_tokens = 75;
  const std::vector<float> x = random.Normals(size_t(max_tokens) * cols), w = random.Normals(size_t(2 * dim) * cols);
  for (const DataType type : kAllTypes) {
    std::vector<float> alone;
    const auto one_thread = MakeBackend(1), three_threads = MakeBackend(3);
    const auto packed = PackGated(one_thread.get(), w, cols, type);
    for (int t = 0; t < max_tokens; ++t) {
      const std::vector<float> row(x.begin() + t * cols, x.begin() + (t + 1) * cols);
      const std::vector<float> y = MultiplyGated(one_thread.get(), row, *packed, cols, dim);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int n = 1; n <= max_tokens; n = n < 50 ? n + 1 : n + 25) {
      const std::vector<float> y =
          MultiplyGated(three_threads.get(), {x.begin(), x.begin() + n * cols}, *packed, cols, dim);
      EXPECT_TRUE(std::equal(y.begin(), y.end(), alone.begin())) << n << " rows, " << Name(type);
    }
  }
}

// Enough columns and rows that kernels divide both into blocks. The last blocks are smaller than the others, and the
// last tile has few rows.
TEST_P(DenseKernelsTest, ALongRowDoesNotDependOnItsCompany) {
  Random random(22);
  const int cols = 1109, rows = 170, max_tokens = 600;
  const std::vector<float> x = Rounded(random.Normals(size_t(max_tokens) * cols), DataType::kBFloat16);
  const std::vector<float> w = random.Normals(size_t(rows) * cols), bias = random.Normals(rows);
  const auto backend = MakeBackend(3);
  const auto packed = Pack(backend.get(), w, cols, DataType::kBFloat16);
  const auto gated = PackGated(backend.get(), w, cols, DataType::kBFloat16);
  const std::vector<char> input = Encoded(x, backend->InputType(*packed));
  const std::vector<float> residual = random.Normals(size_t(max_tokens) * rows);
  // Returns rows [begin, end) of both products.
  const auto multiply = [&](int begin, int end) {
    std::vector<float> y(residual.begin() + begin * rows, residual.begin() + end * rows);
    backend->Linear({.x = input.data() + size_t(begin) * cols * SizeOf(backend->InputType(*packed)),
                     .w = packed.get(),
                     .bias = bias.data(),
                     .residual = y.data(),
                     .y = y.data(),
                     .num_tokens = end - begin});
    return std::pair(y, MultiplyGated(backend.get(), {x.begin() + begin * cols, x.begin() + end * cols}, *gated, cols,
                                      rows / 2, bias.data(), DataType::kBFloat16));
  };
  std::vector<float> few, few_gated;
  for (int begin = 0; begin < max_tokens; begin += 12) {
    const auto [y, gated_y] = multiply(begin, begin + 12);
    few.insert(few.end(), y.begin(), y.end());
    few_gated.insert(few_gated.end(), gated_y.begin(), gated_y.end());
  }
  for (const int n : {63, 64, 65, 80, 81, 96, 97, 513, 600}) {
    const auto [y, gated_y] = multiply(0, n);
    EXPECT_TRUE(std::equal(y.begin(), y.end(), few.begin())) << n << " rows";
    EXPECT_TRUE(std::equal(gated_y.begin(), gated_y.end(), few_gated.begin())) << n << " rows, gated";
  }
}

// A norm and a gated MLP, as a layer has them. With `uses_layouts`, each operation writes its output as the next one
// reads it fastest.
std::vector<float> RunMlp(Backend* backend, const std::vector<float>& x, const std::vector<float>& norm,
                          const PackedMatrix& gate_up, const PackedMatrix& down, int mlp_dim, bool uses_layouts) {
  const int dim = int(norm.size()), num_tokens = int(x.size()) / dim;
  const auto layout_of = [&](const PackedMatrix& w) {
    return uses_layouts ? backend->InputLayoutOf(w, num_tokens) : InputLayout::kRows;
  };
  std::vector<float> normed(x.size(), NAN), gated(size_t(num_tokens) * mlp_dim, NAN), y(x.size());
  backend->RmsNorm({.x = x.data(),
                    .weight = norm.data(),
                    .y = normed.data(),
                    .num_rows = num_tokens,
                    .dim = dim,
                    .epsilon = 1e-5f,
                    .y_type = backend->InputType(gate_up),
                    .y_layout = layout_of(gate_up)});
  backend->GatedLinear({.x = normed.data(),
                        .w = &gate_up,
                        .bias = nullptr,
                        .y = gated.data(),
                        .y_type = backend->InputType(down),
                        .num_tokens = num_tokens,
                        .x_layout = layout_of(gate_up),
                        .y_layout = layout_of(down)});
  backend->Linear({.x = gated.data(),
                   .w = &down,
                   .bias = nullptr,
                   .residual = x.data(),
                   .y = y.data(),
                   .num_tokens = num_tokens,
                   .x_layout = layout_of(down)});
  return y;
}

// The columns of the second matrix make blocks of different sizes, and other blocks in two slices.
TEST_P(DenseKernelsTest, TilesHoldTheSameNumbersAsRows) {
  Random random(23);
  const int dim = 1056, mlp_dim = 1088, max_tokens = 600;
  const std::vector<float> x = random.Normals(size_t(max_tokens) * dim), norm = random.Normals(dim);
  const std::vector<float> up = random.Normals(size_t(2 * mlp_dim) * dim, 0.03f);
  const std::vector<float> back = random.Normals(size_t(dim) * mlp_dim, 0.03f);
  for (const int num_threads : {1, 3}) {
    const auto backend = MakeBackend(num_threads);
    const auto gate_up = PackGated(backend.get(), up, dim, DataType::kBFloat16);
    for (const int num_slices : {1, 2}) {
      const auto down = Pack(backend.get(), back, mlp_dim, DataType::kBFloat16, num_slices);
      const InputLayout tiles = cpu::TilesOf(num_slices);
      for (const int num_tokens : {128, 129, 200, max_tokens}) {
        const bool is_tiled = GetParam() == cpu::Isa::kAmx && num_tokens > 128;
        EXPECT_EQ(backend->InputLayoutOf(*gate_up, num_tokens), is_tiled ? cpu::TilesOf(1) : InputLayout::kRows);
        EXPECT_EQ(backend->InputLayoutOf(*down, num_tokens), is_tiled ? tiles : InputLayout::kRows);
        if (!is_tiled && num_tokens > 129) continue;
        const std::vector<float> first(x.begin(), x.begin() + size_t(num_tokens) * dim);
        const auto run = [&](bool uses_layouts) {
          return RunMlp(backend.get(), first, norm, *gate_up, *down, mlp_dim, uses_layouts);
        };
        EXPECT_EQ(run(true), run(false)) << num_tokens << " tokens, " << num_slices << " slices";
      }
    }
  }
}

TEST_P(DenseKernelsTest, MatricesWhoseColumnsDoNotFillTilesTakeRows) {
  const auto backend = MakeBackend();
  const auto w = Pack(backend.get(), std::vector<float>(40), 40, DataType::kBFloat16);
  EXPECT_EQ(backend->InputLayoutOf(*w, 200), InputLayout::kRows);
}

INSTANTIATE_TEST_SUITE_P(Isas, DenseKernelsTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
