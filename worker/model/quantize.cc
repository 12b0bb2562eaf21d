#include "worker/model/quantize.h"

#include <algorithm>
#include <cmath>

#include "kernels/half_float.h"

namespace quire {
namespace {

// With a smaller magnitude, 127 / magnitude could be infinite.
constexpr float kSmallestMagnitude = 0x1p-100f;

// Adding and subtracting 1.5 * 2^23 rounds |x| < 2^22 to a whole number, ties to even.
float RoundToWhole(float x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

template <typename Element>
void QuantizeRow(const Element* row, int cols, std::vector<float>* floats, int8_t* values, float* scale) {
  float largest = 0;
  for (int k = 0; k < cols; ++k) {
    (*floats)[k] = ToFloat(row[k]);
    largest = std::max(largest, std::abs((*floats)[k]));
  }
  const bool is_zero = largest < kSmallestMagnitude;
  const float inverse = is_zero ? 0.0f : 127.0f / largest;
  *scale = is_zero ? 0.0f : largest / 127.0f;
  for (int k = 0; k < cols; ++k) values[k] = static_cast<int8_t>(RoundToWhole((*floats)[k] * inverse));
}

template <typename Element>
void QuantizeRows(const MatrixView& matrix, QuantizedMatrix* result) {
  std::vector<float> floats(matrix.cols);
  for (int row = 0; row < matrix.rows; ++row) {
    const int64_t at = int64_t{row} * matrix.cols;
    QuantizeRow(static_cast<const Element*>(matrix.data) + at, matrix.cols, &floats, &result->values[at],
                &result->scales[row]);
  }
}

}  // namespace

const char* Name(Quantization quantization) {
  return quantization == Quantization::kInt8 ? "int8" : "none";
}

QuantizedMatrix QuantizeToInt8(const MatrixView& matrix) {
  QuantizedMatrix result;
  result.rows = matrix.rows;
  result.cols = matrix.cols;
  result.values.resize(static_cast<size_t>(matrix.rows) * matrix.cols);
  result.scales.resize(matrix.rows);
  switch (matrix.type) {
    case DataType::kFloat32:
      QuantizeRows<float>(matrix, &result);
      break;
    case DataType::kBFloat16:
      QuantizeRows<BFloat16>(matrix, &result);
      break;
    case DataType::kFloat16:
      QuantizeRows<Float16>(matrix, &result);
      break;
  }
  return result;
}

}  // namespace quire
