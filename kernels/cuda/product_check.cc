// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/product_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "kernels/cuda/device_buffer.h"
#include "kernels/half_float.h"

namespace quire::cuda {
namespace {

constexpr int kMostRows = 64;

// Sums of exact products in float32 are far closer. An element that is left out or taken twice is farther, with up to
// some ten thousand columns.
constexpr double kTolerance = 5e-5;

float RoundTo(DataType element, float value) {
  return element == DataType::kBFloat16 ? ToFloat(ToBFloat16(value)) : ToFloat(ToFloat16(value));
}
uint16_t BitsOf(DataType element, float value) {
  return element == DataType::kBFloat16 ? ToBFloat16(value).bits : ToFloat16(value).bits;
}

// The number that a byte of E4M3 stands for.
float Fp8Value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float magnitude =
      exponent == 0 ? std::ldexp(float(mantissa), -9) : std::ldexp(float(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -magnitude : magnitude;
}

// Returns numbers of both signs, from 1/8 to 1 in magnitude, which 16 bits hold exactly.
std::vector<float> Inputs(size_t count) {
  std::vector<float> x(count);
  uint32_t state = 1;
  for (float& value : x) {
    state = state * 1664525 + 1013904223;  // Knuth's and Lewis's generator; the upper bits are used.
    value = (state >> 31 ? -1.0f : 1.0f) * float(8 + (state >> 24) % 57) / 64;
  }
  return x;
}

}  // namespace

ProductCheck::ProductCheck(Device* device, DataType element, const QuantizedMatrixView* matrices, int num_matrices)
    : device_(device), element_(element), matrices_(matrices, matrices + num_matrices) {
  for (const QuantizedMatrixView& matrix : matrices_) rows_ += matrix.rows;
}

std::vector<double> ProductCheck::WeightsOfRow(int n, WeightsOfProduct weights) const {
  auto matrix = matrices_.begin();
  for (; n >= matrix->rows; ++matrix) n -= matrix->rows;
  const bool has_groups = HasGroups(matrix->format);
  const int group = has_groups ? matrix->group : matrix->cols;
  const int64_t num_groups = (matrix->cols + group - 1) / group;
  std::vector<double> row(matrix->cols);
  for (int k = 0; k < matrix->cols; ++k) {
    const int8_t bits = matrix->values[int64_t{n} * matrix->cols + k];
    const int64_t at = n * num_groups + k / group;
    float value = matrix->format == QuantizedFormat::kFp8 ? Fp8Value(uint8_t(bits)) : float(bits);
    if (matrix->zeros != nullptr && matrix->format != QuantizedFormat::kInt8 &&
        matrix->format != QuantizedFormat::kFp8) {
      value -= float(matrix->zeros[at]);
    }
    const float scale = matrix->scales[at];
    row[matrix->order == nullptr ? k : matrix->order[k]] =
        weights == WeightsOfProduct::kExact ? double{value} * double{scale} : double{RoundTo(element_, value * scale)};
  }
  return row;
}

BackendStatus ProductCheck::Run(int num_tokens, WeightsOfProduct weights,
                                const std::function<void(const uint16_t* x, float* y)>& multiply) const {
  const int cols = matrices_[0].cols;
  const std::vector<float> x = Inputs(size_t(num_tokens) * cols);
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
    const std::vector<double> w = WeightsOfRow(n, weights);
    for (int token = 0; token < num_tokens; ++token) {
      double sum = 0, magnitudes = 0;
      for (int k = 0; k < cols; ++k) {
        const double product = double{x[int64_t{token} * cols + k]} * w[k];
        sum += product;
        magnitudes += std::fabs(product);
      }
      const float result = y[int64_t{token} * rows_ + n];
      // The comparison is false for a NaN.
      if (std::fabs(double{result} - sum) <= kTolerance * magnitudes) continue;
      char message[200];
      std::snprintf(message, sizeof(message),
                    "its product of %d tokens by a quantized matrix of %d rows and %d columns is %g instead of %g at "
                    "token %d, row %d",
                    num_tokens, rows_, cols, double{result}, sum, token, n);
      return BackendStatus::Error(message);
    }
  }
  return BackendStatus::Ok();
}

}  // namespace quire::cuda
