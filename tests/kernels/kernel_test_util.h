// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_KERNEL_TEST_UTIL_H_
#define QUIRE_TESTS_KERNELS_KERNEL_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/backend.h"
#include "kernels/half_float.h"
#include "kernels/reference/quantized.h"

namespace quire {

constexpr DataType kAllTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

// Deterministic random inputs of one test.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // Uniform in [low, high].
  int Int(int low, int high) { return low + int(engine_() % uint64_t(high - low + 1)); }
  // Standard normal, as a sum of uniforms, so that it is the same with every standard library.
  float Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += double(engine_() >> 11) * 0x1p-53;
    return float(sum);
  }
  std::vector<float> Normals(size_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = scale * Normal();
    return values;
  }
  template <typename T>
  void Shuffle(std::vector<T>* values) {
    for (size_t i = values->size(); i > 1; --i) std::swap((*values)[i - 1], (*values)[Int(0, int(i) - 1)]);
  }

 private:
  std::mt19937_64 engine_;
};

// Returns the value after it has been stored in the type.
inline float Rounded(float value, DataType type) {
  if (type == DataType::kBFloat16) return ToFloat(ToBFloat16(value));
  if (type == DataType::kFloat16) return ToFloat(ToFloat16(value));
  return value;
}

// Returns the largest relative error of rounding to the type.
inline double UnitRoundoff(DataType type) {
  return type == DataType::kBFloat16 ? 0x1p-8 : type == DataType::kFloat16 ? 0x1p-11 : 0;
}

inline std::vector<float> Rounded(std::vector<float> values, DataType type) {
  for (float& value : values) value = Rounded(value, type);
  return values;
}

// Returns the values as an array of the type.
inline std::vector<char> Encoded(const std::vector<float>& values, DataType type) {
  std::vector<char> bytes(values.size() * SizeOf(type));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DataType::kFloat32) FromFloat(values[i], reinterpret_cast<float*>(bytes.data()) + i);
    if (type == DataType::kBFloat16) FromFloat(values[i], reinterpret_cast<BFloat16*>(bytes.data()) + i);
    if (type == DataType::kFloat16) FromFloat(values[i], reinterpret_cast<Float16*>(bytes.data()) + i);
  }
  return bytes;
}

// Returns an array of the type as float32.
inline std::vector<float> Decoded(const std::vector<char>& bytes, DataType type) {
  std::vector<float> values(bytes.size() / SizeOf(type));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DataType::kFloat32) values[i] = reinterpret_cast<const float*>(bytes.data())[i];
    if (type == DataType::kBFloat16) values[i] = ToFloat(reinterpret_cast<const BFloat16*>(bytes.data())[i]);
    if (type == DataType::kFloat16) values[i] = ToFloat(reinterpret_cast<const Float16*>(bytes.data())[i]);
  }
  return values;
}

inline std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Returns the largest difference, relative to the largest expected value.
inline double RelativeError(const std::vector<float>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double difference = std::abs(actual[i] - expected[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return error / std::max(largest, 1e-30);
}

// Returns y [num_tokens, rows] for `x` [num_tokens, cols], without bias or residual.
inline std::vector<float> Multiply(Backend* backend, const std::vector<float>& x, const PackedMatrix& w, int cols,
                                   int rows, const float* bias = nullptr) {
  const int num_tokens = int(x.size()) / cols;
  const std::vector<char> input = Encoded(x, backend->InputType(w));
  std::vector<float> y(size_t(num_tokens) * rows, NAN);
  backend->Linear(
      {.x = input.data(), .w = &w, .bias = bias, .residual = nullptr, .y = y.data(), .num_tokens = num_tokens});
  return y;
}

// Returns the sum over the groups of columns of (product by a matrix of bfloat16) * (scale of the column's group),
// added with one rounding. Products of bfloat16 add pairs of products or more in an order of their own.
inline std::vector<float> SumOfGroups(Backend* backend, const std::vector<float>& x,
                                      const std::vector<BFloat16>& numbers, const std::vector<float>& scales, int cols,
                                      int group) {
  const int num_tokens = int(x.size()) / cols, rows = int(numbers.size()) / cols;
  const int num_groups = int(scales.size()) / rows;
  const auto columns = [&]<typename T>(const std::vector<T>& matrix, int begin, int count) {
    std::vector<T> part;
    for (auto row = matrix.begin(); row != matrix.end(); row += cols) {
      part.insert(part.end(), row + begin, row + begin + count);
    }
    return part;
  };
  std::vector<float> y(size_t(num_tokens) * rows);
  for (int i = 0; i < num_groups; ++i) {
    const int begin = i * group, count = std::min(group, cols - begin);
    const std::vector<BFloat16> part = columns(numbers, begin, count);
    const MatrixView view = {part.data(), rows, count, DataType::kBFloat16};
    const std::vector<float> sums = Multiply(backend, columns(x, begin, count), *backend->Pack(&view, 1), count, rows);
    for (size_t j = 0; j < y.size(); ++j) {
      const size_t at = j % size_t(rows) * size_t(num_groups) + size_t(i);
      y[j] = std::fma(sums[j], scales[at], y[j]);
    }
  }
  return y;
}

// Expects that a product by `w` adds `bias` [rows] and a residual that is stored where the result goes, in this order.
// `product` [num_tokens, rows] is what it adds them to.
inline void ExpectBiasAndResidualInPlace(Backend* backend, const std::vector<float>& x, const PackedMatrix& w,
                                         const std::vector<float>& bias, const std::vector<float>& residual,
                                         const std::vector<float>& product) {
  const int num_tokens = int(product.size() / bias.size());
  std::vector<float> y = residual, expected = product;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = (expected[i] + bias[i % bias.size()]) + residual[i];
  const std::vector<char> input = Encoded(x, backend->InputType(w));
  backend->Linear(
      {.x = input.data(), .w = &w, .bias = bias.data(), .residual = y.data(), .y = y.data(), .num_tokens = num_tokens});
  EXPECT_EQ(y, expected) << num_tokens << " tokens";
}

// Expects that the gated product by `w`, with `bias` [2 * dim] or with none if it is empty, is the gated product of
// `halves` [num_tokens, 2 * dim].
inline void ExpectGatedProduct(Backend* backend, const std::vector<float>& x, const PackedMatrix& w, int dim,
                               const std::vector<float>& bias, const std::vector<float>& halves) {
  const int num_tokens = int(halves.size()) / (2 * dim);
  const auto bias_of = [&bias](int i) { return bias.empty() ? 0.0 : double{bias[i]}; };
  const std::vector<char> input = Encoded(x, backend->InputType(w));
  std::vector<float> y(size_t(num_tokens) * dim, NAN);
  backend->GatedLinear({.x = input.data(),
                        .w = &w,
                        .bias = bias.empty() ? nullptr : bias.data(),
                        .y = y.data(),
                        .y_type = DataType::kFloat32,
                        .num_tokens = num_tokens});
  std::vector<double> expected;
  for (int token = 0; token < num_tokens; ++token) {
    for (int i = 0; i < dim; ++i) {
      const double gate = halves[token * 2 * dim + i] + bias_of(i);
      const double up = halves[token * 2 * dim + dim + i] + bias_of(dim + i);
      expected.push_back(gate / (1 + std::exp(-gate)) * up);
    }
  }
  EXPECT_LT(RelativeError(y, expected), 1e-6);
}

inline std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// Returns the instruction sets of this machine, or AMX alone in a program with software_amx_kernels.cc.
std::vector<cpu::Isa> TestedIsas();

// Tests with the instruction set as parameter run once for each one of TestedIsas().
class CpuBackendTest : public testing::TestWithParam<cpu::Isa> {
 protected:
  std::unique_ptr<Backend> MakeBackend(int num_threads = 2) { return cpu::MakeCpuBackend(num_threads, GetParam()); }
};

inline std::string IsaName(const testing::TestParamInfo<cpu::Isa>& info) {
  return cpu::Name(info.param);
}

}  // namespace quire

#endif  // QUIRE_TESTS_KERNELS_KERNEL_TEST_UTIL_H_
