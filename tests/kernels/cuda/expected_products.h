// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_EXPECTED_PRODUCTS_H_
#define QUIRE_TESTS_KERNELS_CUDA_EXPECTED_PRODUCTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/sum_tolerance.h"
#include "tests/kernels/cuda/quantized_cases.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire::cuda {

// Products of tokens and rows of weights in float64, and how far a device's products in float32 may be from them.
struct ExpectedProducts {
  // `tolerance` gets the products of a token and a row, in the order of their columns. x is [num_tokens, cols], and w
  // is [rows, cols].
  template <typename Tolerance>
  ExpectedProducts(const std::vector<double>& x, const std::vector<double>& w, int cols, Tolerance tolerance)
      : rows(int(w.size()) / cols) {
    for (size_t i = 0; i < x.size() / cols * rows; ++i) {
      std::vector<double> products(cols);
      double sum = 0;
      for (int k = 0; k < cols; ++k) {
        products[k] = x[i / rows * cols + k] * w[i % rows * cols + k];
        sum += products[k];
      }
      sums.push_back(sum);
      tolerances.push_back(tolerance(products));
    }
  }

  int rows;
  std::vector<double> sums;        // [num_tokens, rows]
  std::vector<double> tolerances;  // Likewise.
};

// Returns the products by the weights of the formula, which are not rounded. Each group is a sum of its own.
inline ExpectedProducts ProductsOf(const std::vector<float>& x, const QuantizedCase& w) {
  const int group = HasGroups(w.format) ? w.group : w.cols;
  return ExpectedProducts(Doubles(x), w.Weights(), w.cols,
                          [&](const std::vector<double>& products) { return Float32SumTolerance(products, group); });
}

// Returns the products by weights that were rounded to the type of elements. They have no groups any more.
inline ExpectedProducts RoundedProductsOf(const std::vector<float>& x, const QuantizedCase& w, DataType element) {
  return ExpectedProducts(Doubles(x), w.RoundedWeights(element), w.cols,
                          [&](const std::vector<double>& products) { return Float32SumTolerance(products, w.cols); });
}

// Returns half a unit in the last place of a number of this magnitude and type, which is the largest error of rounding
// to it.
inline double HalfUnit(double magnitude, DataType type) {
  const int significand_bits = type == DataType::kBFloat16 ? 8 : type == DataType::kFloat16 ? 11 : 24;
  const int least_exponent = type == DataType::kFloat16 ? -14 : -126;
  return std::ldexp(1, std::max(std::ilogb(magnitude), least_exponent) - significand_bits);
}

// Expects that y [num_tokens, rows] has these products, added `times` times to `initial` if that is not null. An
// addition is rounded to float32, and its result to the type of y. With `rounds_twice`, a product is also rounded to 16
// bits before it is added, if y has them.
inline void ExpectNear(const std::vector<float>& y, const ExpectedProducts& expected, DataType y_type,
                       const std::vector<float>* initial = nullptr, bool rounds_twice = false, int times = 1) {
  const bool is_16_bits = y_type != DataType::kFloat32;
  ASSERT_EQ(y.size(), expected.sums.size());
  for (size_t i = 0; i < y.size(); ++i) {
    double sum = initial == nullptr ? 0 : double{(*initial)[i]}, tolerance = 0;
    for (int time = 0; time < times; ++time) {
      sum += expected.sums[i];
      tolerance += expected.tolerances[i];
      if (is_16_bits && rounds_twice) tolerance += HalfUnit(std::fabs(expected.sums[i]), y_type);
      if (initial != nullptr) tolerance += HalfUnit(std::fabs(sum) + tolerance, DataType::kFloat32);
    }
    ASSERT_TRUE(std::isfinite(y[i])) << "token " << i / expected.rows << ", row " << i % expected.rows;
    if (is_16_bits) tolerance += HalfUnit(std::fabs(y[i]), y_type);
    ASSERT_NEAR(y[i], sum, tolerance) << "token " << i / expected.rows << ", row " << i % expected.rows;
  }
}

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_EXPECTED_PRODUCTS_H_
