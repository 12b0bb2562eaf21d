// SPDX-License-Identifier: Apache-2.0

#include "worker/model/quantize.h"

#include <algorithm>
#include <cmath>

#include "kernels/byte_scale.h"
#include "kernels/half_float.h"

namespace quire {
namespace {

// Adding and subtracting 1.5 * 2^23 rounds |x| < 2^22 to a whole number, ties to even.
float RoundToWhole(float x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

void QuantizeSymmetric(const std::vector<float>& floats, int8_t* values, float* scale) {
  float largest = 0;
  for (const float x : floats) largest = std::max(largest, std::abs(x));
  const bool is_zero = largest < kSmallestMagnitude;
  const float inverse = is_zero ? 0.0f : 127.0f / largest;
  *scale = is_zero ? 0.0f : largest / 127.0f;
  for (const float x : floats) *values++ = static_cast<int8_t>(RoundToWhole(x * inverse));
}

void QuantizeGroup(const float* begin, const float* end, int8_t* values, float* scale, uint8_t* zero) {
  constexpr float kLargest = 15;
  // The quarters keep the distance finite.
  const float low = 0.25f * std::min(0.0f, *std::min_element(begin, end));
  const float high = 0.25f * std::max(0.0f, *std::max_element(begin, end));
  const float step = (high - low) / kLargest * 4;
  const bool is_zero = !(step >= kSmallestMagnitude);
  *scale = is_zero ? 0.0f : step;
  const float zero_point = is_zero ? 0.0f : RoundToWhole(-4 * (low / step));
  *zero = static_cast<uint8_t>(zero_point);
  for (; begin < end; ++begin) {
    const float number = is_zero ? 0.0f : RoundToWhole(*begin / step) + zero_point;
    *values++ = static_cast<int8_t>(std::clamp(number, 0.0f, kLargest));
  }
}

// Calls quantize(floats of a row, index of the row) for each row.
template <typename QuantizeRow>
void ForEachRow(const MatrixView& matrix, QuantizeRow&& quantize) {
  std::vector<float> floats(matrix.cols);
  const auto read = [&]<typename Element>(const Element* elements) {
    for (int row = 0; row < matrix.rows; ++row) {
      for (int k = 0; k < matrix.cols; ++k) floats[k] = ToFloat(elements[int64_t{row} * matrix.cols + k]);
      quantize(floats, row);
    }
  };
  switch (matrix.type) {
    case DataType::kFloat32:
      return read(static_cast<const float*>(matrix.data));
    case DataType::kBFloat16:
      return read(static_cast<const BFloat16*>(matrix.data));
    case DataType::kFloat16:
      return read(static_cast<const Float16*>(matrix.data));
  }
}

}  // namespace

const char* Name(Quantization quantization) {
  switch (quantization) {
    case Quantization::kNone:
      break;
    case Quantization::kInt8:
      return "int8";
    case Quantization::kInt4:
      return "int4";
    case Quantization::kFp8:
      return "fp8";
  }
  return "none";
}

const char* Name(Int4Inputs inputs) {
  switch (inputs) {
    case Int4Inputs::kInt8:
      break;
    case Int4Inputs::kBFloat16:
      return "bfloat16";
    case Int4Inputs::kFloat32:
      return "float32";
  }
  return "int8";
}

QuantizedFormat FormatOf(Quantization width, Int4Inputs inputs) {
  switch (width) {
    case Quantization::kFp8:
      return QuantizedFormat::kFp8;
    case Quantization::kInt4:
      return inputs == Int4Inputs::kInt8       ? QuantizedFormat::kInt4
             : inputs == Int4Inputs::kBFloat16 ? QuantizedFormat::kInt4BFloat16
                                               : QuantizedFormat::kInt4Float32;
    case Quantization::kInt8:
    case Quantization::kNone:
      break;
  }
  return QuantizedFormat::kInt8;
}

QuantizedMatrixView QuantizedMatrix::View(Int4Inputs inputs) const {
  const Quantization width = is_fp8 ? Quantization::kFp8 : group == 0 ? Quantization::kInt8 : Quantization::kInt4;
  const QuantizedFormat format = FormatOf(width, inputs);
  return {.values = values.data(),
          .scales = scales.data(),
          .rows = rows,
          .cols = cols,
          .format = format,
          .group = group,
          .zeros = zeros.data(),
          .order = order.empty() ? nullptr : order.data(),
          .has_blocks = has_blocks};
}

QuantizedMatrix QuantizeToInt8(const MatrixView& matrix) {
  QuantizedMatrix result{
      .values = {}, .scales = {}, .rows = matrix.rows, .cols = matrix.cols, .zeros = {}, .order = {}};
  result.values.resize(static_cast<size_t>(matrix.rows) * matrix.cols);
  result.scales.resize(matrix.rows);
  ForEachRow(matrix, [&](const std::vector<float>& floats, int row) {
    QuantizeSymmetric(floats, &result.values[int64_t{row} * matrix.cols], &result.scales[row]);
  });
  return result;
}

QuantizedMatrix QuantizeToInt4(const MatrixView& matrix) {
  constexpr int kGroup = kMaxInt4Group;
  QuantizedMatrix result{
      .values = {}, .scales = {}, .rows = matrix.rows, .cols = matrix.cols, .group = kGroup, .zeros = {}, .order = {}};
  result.values.resize(static_cast<size_t>(matrix.rows) * matrix.cols);
  result.scales.resize(static_cast<size_t>(matrix.rows) * result.num_groups());
  result.zeros.resize(result.scales.size());
  ForEachRow(matrix, [&](const std::vector<float>& floats, int row) {
    size_t at = static_cast<size_t>(row) * result.num_groups();
    for (int k = 0; k < matrix.cols; k += kGroup, ++at) {
      const float* begin = floats.data() + k;
      QuantizeGroup(begin, begin + std::min(kGroup, matrix.cols - k), &result.values[int64_t{row} * matrix.cols + k],
                    &result.scales[at], &result.zeros[at]);
    }
  });
  return result;
}

}  // namespace quire
