// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/table/kernel_table.h"
#include "kernels/reference/dense.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

using RowKernelsTest = CpuBackendTest;

TEST_P(RowKernelsTest, RoundIsToNearestEven) {
  const auto backend = MakeBackend();
  Random random(23);
  const std::vector<float> x = random.Normals(3 * 37);
  std::vector<char> y(x.size() * sizeof(BFloat16));
  backend->Round(x.data(), 3, 37, DataType::kBFloat16, y.data());
  EXPECT_EQ(y, Encoded(x, DataType::kBFloat16));
}

TEST_P(RowKernelsTest, RmsNormAddsItsResidualAndNormsPartsOfRows) {
  const auto backend = MakeBackend();
  Random random(24);
  const int dim = 37, stride = 50, rows = 3;
  const std::vector<float> x = random.Normals(rows * stride), weight = random.Normals(dim);
  std::vector<float> parts, sums = random.Normals(rows * dim);
  for (int row = 0; row < rows; ++row) parts.insert(parts.end(), &x[row * stride], &x[row * stride] + dim);
  std::vector<double> normed = reference::RmsNorm(Doubles(parts), Doubles(weight), 1e-5), expected = normed;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += sums[i];
  RmsNormArgs args = {
      .x = x.data(), .weight = weight.data(), .y = sums.data(), .num_rows = rows, .dim = dim, .epsilon = 1e-5f};
  args.x_stride = stride;
  args.residual = sums.data();
  backend->RmsNorm(args);
  EXPECT_LT(RelativeError(sums, expected), 1e-6);

  std::vector<float> in_place = x;
  args.x = args.y = in_place.data();
  args.y_stride = stride;
  args.residual = nullptr;
  backend->RmsNorm(args);
  for (int i = 0; i < rows * stride; ++i) {
    if (i % stride >= dim) {
      EXPECT_EQ(in_place[i], x[i]) << "behind the part nothing changes";
    } else {
      EXPECT_NEAR(in_place[i], normed[i / stride * dim + i % stride], 1e-5) << i;
    }
  }
}

TEST_P(RowKernelsTest, RmsNormAgreesWithTheReferenceEvenInPlace) {
  const auto backend = MakeBackend();
  Random random(7);
  for (const int dim : {1, 8, 63, 64, 65, 300}) {
    std::vector<float> x = random.Normals(7 * dim);
    const std::vector<float> weight = random.Normals(dim);
    const std::vector<double> expected = reference::RmsNorm(Doubles(x), Doubles(weight), 1e-5);
    backend->RmsNorm(
        {.x = x.data(), .weight = weight.data(), .y = x.data(), .num_rows = 7, .dim = dim, .epsilon = 1e-5f});
    EXPECT_LT(RelativeError(x, expected), 1e-6) << dim;
  }
}

TEST_P(RowKernelsTest, RmsNormRoundsItsOutputToNearestEven) {
  const auto backend = MakeBackend();
  Random random(13);
  const int dim = 75;
  const std::vector<float> x = random.Normals(3 * dim), weight = random.Normals(dim);
  std::vector<float> y(3 * dim);
  RmsNormArgs args = {
      .x = x.data(), .weight = weight.data(), .y = y.data(), .num_rows = 3, .dim = dim, .epsilon = 1e-5f};
  backend->RmsNorm(args);
  std::vector<char> rounded(3 * dim * sizeof(BFloat16));
  args.y = rounded.data();
  args.y_type = DataType::kBFloat16;
  backend->RmsNorm(args);
  EXPECT_EQ(rounded, Encoded(y, DataType::kBFloat16));
}

TEST_P(RowKernelsTest, LayerNormSubtractsTheMean) {
  const auto backend = MakeBackend();
  Random random(25);
  for (const int dim : {1, 37, 300}) {
    std::vector<float> x = random.Normals(5 * dim);
    for (float& value : x) value += 3;
    const std::vector<float> weight = random.Normals(dim);
    std::vector<double> centred = Doubles(x);
    for (int row = 0; row < 5; ++row) {
      double mean = 0;
      for (int i = 0; i < dim; ++i) mean += centred[row * dim + i] / dim;
      for (int i = 0; i < dim; ++i) centred[row * dim + i] -= mean;
    }
    std::vector<float> y(5 * dim);
    RmsNormArgs args = {
        .x = x.data(), .weight = weight.data(), .y = y.data(), .num_rows = 5, .dim = dim, .epsilon = 1e-5f};
    args.subtracts_mean = true;
    backend->RmsNorm(args);
    EXPECT_LT(RelativeError(y, reference::RmsNorm(centred, Doubles(weight), 1e-5)), 1e-5) << dim;
  }
}

TEST_P(RowKernelsTest, ActivateAgreesWithItsFormulas) {
  const auto backend = MakeBackend();
  Random random(26);
  const int rows = 3, dim = 77;
  std::vector<float> x = random.Normals(rows * dim);
  x[0] = 0;
  x[1] = -1e-7f;
  x[2] = -200;
  ActivateArgs args = {.x = x.data(),
                       .y = nullptr,
                       .num_rows = rows,
                       .dim = dim,
                       .y_type = DataType::kFloat32,
                       .activation = PlainActivation::kSquaredRelu,
                       .xielu = {.positive = 0.8f, .negative = 1.1f}};
  std::vector<float> y(x.size());
  args.y = y.data();
  backend->Activate(args);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i] > 0 ? x[i] * x[i] : 0) << x[i];

  args.activation = PlainActivation::kXielu;
  backend->Activate(args);
  std::vector<double> expected;
  for (const double a : Doubles(x)) {
    const double curve =
        a > 0 ? args.xielu.positive * a * a : args.xielu.negative * (std::expm1(std::min(a, -1e-6)) - a);
    expected.push_back(curve + 0.5 * a);
  }
  EXPECT_LT(RelativeError(y, expected), 1e-6);
  std::vector<char> rounded(x.size() * sizeof(BFloat16));
  args.y = rounded.data();
  args.y_type = DataType::kBFloat16;
  backend->Activate(args);
  EXPECT_EQ(rounded, Encoded(y, DataType::kBFloat16));
}

TEST_P(RowKernelsTest, ExpIsWithinTwoUnitsInTheLastPlace) {
  const cpu::KernelTable& kernels = cpu::KernelsFor(GetParam());
  std::vector<float> x;
  for (float value = -86.9f; value < 87.9f; value += 0.00517f) x.push_back(value);
  std::vector<float> y(x.size());
  kernels.exp(x.data(), int(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(double(x[i]));
    const double unit = std::abs(std::nextafter(float(expected), INFINITY) - float(expected));
    ASSERT_LT(std::abs(y[i] - expected), 2 * unit) << x[i];
  }
  const std::vector<float> special = {0, -100, -INFINITY, NAN};
  kernels.exp(special.data(), 4, y.data());
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 0);
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST_P(RowKernelsTest, GatherRowsCopiesRows) {
  const auto backend = MakeBackend();
  const std::vector<float> x = {0, 1, 2, 3, 4, 5};
  const std::vector<int32_t> rows = {2, 0, 2};
  std::vector<float> y(6);
  backend->GatherRows(x.data(), rows.data(), 3, 2, y.data());
  EXPECT_EQ(y, (std::vector<float>{4, 5, 0, 1, 4, 5}));
}

INSTANTIATE_TEST_SUITE_P(Isas, RowKernelsTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
