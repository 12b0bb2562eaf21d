// SPDX-License-Identifier: Apache-2.0

#include "tools/quantize/fp8_blocks.h"

#include <algorithm>
#include <cmath>

#include "kernels/byte_scale.h"
#include "kernels/ceil_div.h"
#include "kernels/fp8.h"
#include "worker/model/fp8.h"

namespace quire::quantize {
namespace {

constexpr int64_t kSide = kFp8BlockSide;

// Rounds the weights of the block that begins at this row and column, and returns its scale.
float RoundBlock(const std::vector<float>& weights, int64_t rows, int64_t cols, int64_t first_row, int64_t first_col,
                 std::string* numbers) {
  const int64_t end_row = std::min(first_row + kSide, rows), end_col = std::min(first_col + kSide, cols);
  float largest = 0;
  for (int64_t row = first_row; row < end_row; ++row) {
    for (int64_t col = first_col; col < end_col; ++col) {
      largest = std::max(largest, std::fabs(weights[row * cols + col]));
    }
  }
  if (largest < kSmallestMagnitude) return 0;  // All numbers stay 0.
  const float inverse = kLargestFp8 / largest;
  for (int64_t row = first_row; row < end_row; ++row) {
    for (int64_t col = first_col; col < end_col; ++col) {
      (*numbers)[row * cols + col] = static_cast<char>(FloatToFp8(weights[row * cols + col] * inverse));
    }
  }
  return largest / kLargestFp8;
}

}  // namespace

nlohmann::ordered_json Fp8QuantizationConfig(const std::vector<std::string>& plain_modules) {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {kSide, kSide}},
          {"modules_to_not_convert", plain_modules}};
}

std::vector<TensorEntry> Fp8EntriesOf(const std::string& weight, int64_t rows, int64_t cols) {
  const int64_t block_rows = CeilDiv(rows, kSide), block_cols = CeilDiv(cols, kSide);
  return {{weight, kFp8Type, {rows, cols}, static_cast<uint64_t>(rows * cols)},
          {weight + "_scale_inv",
           "F32",
           {block_rows, block_cols},
           sizeof(float) * static_cast<uint64_t>(block_rows * block_cols)}};
}

std::vector<std::string> Fp8BytesOf(const std::vector<float>& weights, int64_t rows, int64_t cols) {
  std::string numbers(weights.size(), '\0');
  std::vector<float> scales;
  for (int64_t row = 0; row < rows; row += kSide) {
    for (int64_t col = 0; col < cols; col += kSide) {
      scales.push_back(RoundBlock(weights, rows, cols, row, col, &numbers));
    }
  }
  return {numbers, {reinterpret_cast<const char*>(scales.data()), scales.size() * sizeof(float)}};
}

}  // namespace quire::quantize
