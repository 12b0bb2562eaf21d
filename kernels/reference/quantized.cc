#include "kernels/reference/quantized.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::reference {

QuantizedRow Quantize(const float* x, int cols) {
  QuantizedRow row = {std::vector<int>(cols), 0};
  float largest = 0;
  for (int k = 0; k < cols; ++k) {
    if (!std::isfinite(x[k])) {
      row.scale = std::numeric_limits<float>::quiet_NaN();
      return row;
    }
    largest = std::max(largest, std::abs(x[k]));
  }
  if (largest < 0x1p-100f) return row;
  row.scale = largest / 127.0f;
  const float inverse = 127.0f / largest;
  for (int k = 0; k < cols; ++k) row.values[k] = static_cast<int>(std::nearbyint(x[k] * inverse));
  return row;
}

std::vector<float> QuantizedLinear(const std::vector<float>& x, const std::vector<int8_t>& values,
                                   const std::vector<float>& scales, int cols) {
  std::vector<float> y;
  for (size_t token = 0; token < x.size() / cols; ++token) {
    const QuantizedRow row = Quantize(&x[token * cols], cols);
    for (size_t n = 0; n < scales.size(); ++n) {
      int64_t sum = 0;
      for (int k = 0; k < cols; ++k) sum += int64_t{row.values[k]} * values[n * cols + k];
      y.push_back(static_cast<float>(sum) * (row.scale * scales[n]));
    }
  }
  return y;
}

}  // namespace quire::reference
