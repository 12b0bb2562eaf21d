// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/quantized_cases.h"

#include <algorithm>

#include "kernels/reference/quantized.h"

namespace quire::cuda {

QuantizedCase::QuantizedCase(QuantizedFormat matrix_format, int num_rows, int num_cols, int group_cols, uint64_t seed)
    : format(matrix_format), rows(num_rows), cols(num_cols), group(group_cols) {
  Random random(seed);
  values.resize(size_t(rows) * cols);
  for (size_t i = 0; i < values.size(); ++i) {
    const int number = i < 256 ? int(i) : random.Int(0, 255);
    const bool is_nan = format == QuantizedFormat::kFp8 && (number & 0x7f) == 0x7f;
    values[i] = int8_t(IsInt4(format) ? number % 16 : is_nan ? 0 : number);
  }
  scales = random.Normals(size_t(rows) * NumGroups(), format == QuantizedFormat::kFp8 ? 0.01f : 1);
  if (!IsInt4(format)) return;
  zeros.resize(scales.size());
  for (uint8_t& zero : zeros) zero = uint8_t(random.Int(0, 16));
}

QuantizedCase QuantizedCase::InBlocks(int num_rows, int num_cols, uint64_t seed) {
  constexpr int kBlock = 128;
  QuantizedCase result(QuantizedFormat::kFp8, num_rows, num_cols, kBlock, seed);
  result.has_blocks = true;
  const int num_groups = result.NumGroups();
  for (int row = 0; row < num_rows; ++row) {
    const auto first = result.scales.begin() + int64_t{row / kBlock * kBlock} * num_groups;
    std::copy_n(first, num_groups, result.scales.begin() + int64_t{row} * num_groups);
  }
  return result;
}

QuantizedMatrixView QuantizedCase::View(int first_row, int num_rows) const {
  const size_t first_group = size_t(first_row) * NumGroups();
  return {.values = values.data() + size_t(first_row) * cols,
          .scales = scales.data() + first_group,
          .rows = num_rows,
          .cols = cols,
          .format = format,
          .group = HasGroups(format) ? group : 0,
          .zeros = zeros.empty() ? nullptr : zeros.data() + first_group,
          .has_blocks = has_blocks};
}

float QuantizedCase::Number(int row, int col) const {
  const int8_t value = values[size_t(row) * cols + col];
  if (format == QuantizedFormat::kFp8) return reference::Fp8Value(uint8_t(value));
  return float(value) - (zeros.empty() ? 0 : float(zeros[size_t(row) * NumGroups() + col / group]));
}

float QuantizedCase::Scale(int row, int col) const {
  return scales[size_t(row) * NumGroups() + (HasGroups(format) ? col / group : 0)];
}

std::vector<double> QuantizedCase::Weights() const {
  std::vector<double> weights;
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col) weights.push_back(double{Number(row, col)} * double{Scale(row, col)});
  }
  return weights;
}

std::vector<double> QuantizedCase::RoundedWeights(DataType element) const {
  std::vector<double> weights;
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < cols; ++col)
      weights.push_back(double{Rounded(Number(row, col) * Scale(row, col), element)});
  }
  return weights;
}

const char* Name(QuantizedFormat format) {
  switch (format) {
    case QuantizedFormat::kInt8:
      return "int8";
    case QuantizedFormat::kFp8:
      return "fp8";
    case QuantizedFormat::kInt4:
    case QuantizedFormat::kInt4Float32:
    case QuantizedFormat::kInt4BFloat16:
      break;
  }
  return "int4";
}

}  // namespace quire::cuda
