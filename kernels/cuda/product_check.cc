// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/product_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "kernels/cuda/byte_numbers.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/sum_tolerance.h"
#include "kernels/fp8.h"
#include "kernels/half_float.h"

namespace quire::cuda {
namespace {

constexpr int kMostRows = 64;

float RoundTo(DataType element, float value) {
  return element == DataType::kBFloat16 ? ToFloat(ToBFloat16(value)) : ToFloat(ToFloat16(value));
}
uint16_t BitsOf(DataType element, float value) {
  return element == DataType::kBFloat16 ? ToBFloat16(value).bits : ToFloat16(value).bits;
}

// Returns numbers of both signs, which 16 bits hold exactly. The first token has magnitudes from 1/8 to 1, and other
// tokens up to four times as large, so that tokens have different scales.
std::vector<float> Inputs(int num_tokens, int cols) {
  std::vector<float> x(size_t(num_tokens) * cols);
  uint32_t state = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    state = state * 1664525 + 1013904223;  // Knuth's and Lewis's generator; the upper bits are used.
    const float magnitude = float(8 + (state >> 24) % 57) / 64 * float(1 << i / size_t(cols) % 3);
    x[i] = state >> 31 ? -magnitude : magnitude;
  }
  return x;
}

float LargestMagnitude(const float* x, int count) {
  float largest = 0;
  for (int k = 0; k < count; ++k) largest = std::max(largest, std::fabs(x[k]));
  return largest;
}

// Returns float(sum of q * values) * (scale of x * w_scale), where the q are x, rounded to whole numbers of 8 bits.
// REQUIRES: x is finite, and not all of it is near 0.
float Int8ProductOf(const float* x, const int8_t* values, int cols, float w_scale) {
  const float largest = LargestMagnitude(x, cols), inverse = 127.0f / largest;
  int64_t sum = 0;
  for (int k = 0; k < cols; ++k) sum += int64_t(std::nearbyint(x[k] * inverse)) * values[k];
  const float scale = largest / 127.0f * w_scale;
  return float(sum) * scale;
}

// Rounds numbers to FP8, with one scale for each `group` of them. REQUIRES: they are finite, and not all of a group are
// near 0.
void RoundToFp8(std::vector<float>* x, size_t group) {
  for (size_t first = 0; first < x->size(); first += group) {
    const size_t count = std::min(group, x->size() - first);
    const float largest = LargestMagnitude(&(*x)[first], int(count));
    const float scale = largest / kLargestFp8, inverse = kLargestFp8 / largest;
    for (size_t i = first; i < first + count; ++i) (*x)[i] = Fp8ToFloat(FloatToFp8((*x)[i] * inverse)) * scale;
  }
}

}  // namespace

ProductCheck::ProductCheck(Device* device, DataType element, const QuantizedMatrixView* matrices, int num_matrices)
    : device_(device), element_(element), matrices_(matrices, matrices + num_matrices) {
  for (const QuantizedMatrixView& matrix : matrices_) rows_ += matrix.rows;
}

ProductCheck::Row ProductCheck::FindRow(int n) const {
  const QuantizedMatrixView* matrix = matrices_.data();
  for (; n >= matrix->rows; ++matrix) n -= matrix->rows;
  return {matrix, n};
}

std::vector<double> ProductCheck::WeightsOf(const Row& row, ProductFormula formula) const {
  const QuantizedMatrixView& matrix = *row.matrix;
  const bool has_groups = HasGroups(matrix.format);
  const int group = has_groups ? matrix.group : matrix.cols;
  const int64_t num_groups = CeilDiv(matrix.cols, group);
  std::vector<double> weights(matrix.cols);
  for (int k = 0; k < matrix.cols; ++k) {
    const int8_t bits = matrix.values[int64_t{row.index} * matrix.cols + k];
    const int64_t at = row.index * num_groups + k / group;
    float value = matrix.format == QuantizedFormat::kFp8 ? Fp8ToFloat(uint8_t(bits)) : float(bits);
    if (matrix.zeros != nullptr && matrix.format != QuantizedFormat::kInt8 && matrix.format != QuantizedFormat::kFp8) {
      value -= float(matrix.zeros[at]);
    }
    const float scale = matrix.scales[at];
    weights[k] = formula == ProductFormula::kRoundedWeights ? double{RoundTo(element_, value * scale)}
                                                            : double{value} * double{scale};
  }
  return weights;
}

std::vector<ProductCheck::Expected> ProductCheck::Products(const std::vector<float>& x, const Row& row,
                                                           ProductFormula formula) const {
  const int cols = row.matrix->cols;
  const int32_t* const order = row.matrix->order;
  std::vector<Expected> products(x.size() / cols);
  const bool rounds_inputs = formula == ProductFormula::kRoundedInputs;
  if (rounds_inputs && row.matrix->format == QuantizedFormat::kInt8) {
    const int8_t* const values = row.matrix->values + int64_t{row.index} * cols;
    for (size_t token = 0; token < products.size(); ++token) {
      products[token] = {Int8ProductOf(&x[token * cols], values, cols, row.matrix->scales[row.index]), 0};
    }
    return products;
  }
  const std::vector<double> w = WeightsOf(row, formula);
  // Only sums of exact weights have groups: dequantized weights are a matrix of 16 bits.
  const bool has_groups = formula == ProductFormula::kExactWeights && HasGroups(row.matrix->format);
  for (size_t token = 0; token < products.size(); ++token) {
    std::vector<float> inputs(x.begin() + int64_t(token) * cols, x.begin() + int64_t(token + 1) * cols);
    if (rounds_inputs) RoundToFp8(&inputs, size_t(row.matrix->has_blocks ? kScaledColumns : cols));
    std::vector<double> terms(cols);
    double sum = 0;
    for (int k = 0; k < cols; ++k) {
      terms[k] = double{inputs[order == nullptr ? k : order[k]]} * w[k];
      sum += terms[k];
    }
    const int group = has_groups ? row.matrix->group : cols;
    products[token] = {sum, rounds_inputs ? Fp8SumTolerance(terms) : Float32SumTolerance(terms, group)};
  }
  return products;
}

BackendStatus ProductCheck::Run(int num_tokens, ProductFormula formula,
                                const std::function<void(const uint16_t* x, float* y)>& multiply) const {
  const int cols = matrices_[0].cols;
  const std::vector<float> x = Inputs(num_tokens, cols);
  std::vector<uint16_t> bits(x.size());
  std::transform(x.begin(), x.end(), bits.begin(), [&](float value) { return BitsOf(element_, value); });
  std::vector<float> y(size_t(num_tokens) * rows_);
  DeviceBuffer x_on_device(device_, "inputs of a check"), y_on_device(device_, "results of a check");
  uint16_t* const device_x = x_on_device.Reserve<uint16_t>(x.size());
  float* const device_y = y_on_device.Reserve<float>(y.size());
  device_->Copy(device_x, bits.data(), bits.size() * sizeof(uint16_t));
  multiply(device_x, device_y);
  device_->Copy(y.data(), device_y, y.size() * sizeof(float));
  device_->Synchronize();
  const int num_checked = std::min(kMostRows, rows_);
  for (int i = 0; i < num_checked; ++i) {
    const int n = num_checked == 1 ? 0 : int(int64_t{i} * (rows_ - 1) / (num_checked - 1));
    const std::vector<Expected> expected = Products(x, FindRow(n), formula);
    for (int token = 0; token < num_tokens; ++token) {
      const double result = y[int64_t{token} * rows_ + n], right = expected[token].result;
      // The comparison is false for a NaN.
      if (std::fabs(result - right) <= expected[token].tolerance) continue;
      char message[200];
      std::snprintf(message, sizeof(message),
                    "its product of %d tokens by a quantized matrix of %d rows and %d columns is %.9g instead of %.9g "
                    "at token %d, row %d",
                    num_tokens, rows_, cols, result, right, token, n);
      return BackendStatus::Error(message);
    }
  }
  return BackendStatus::Ok();
}

}  // namespace quire::cuda
