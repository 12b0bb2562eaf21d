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

namespace {

// Calls add(token, row of w, first column of the group, number of its columns, index of its scale, &y) for each group
// of each product, in ascending order.
template <typename AddGroup>
std::vector<float> SumGroups(const std::vector<float>& x, const Int4Matrix& w, AddGroup&& add) {
  std::vector<float> y(x.size() / w.cols * w.rows);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t token = i / w.rows, n = i % w.rows;
    for (int begin = 0; begin < w.cols; begin += w.group) {
      add(token, n, begin, std::min(w.group, w.cols - begin), n * w.num_groups() + begin / w.group, &y[i]);
    }
  }
  return y;
}

}  // namespace

std::vector<float> Int4Linear(const std::vector<float>& x, const Int4Matrix& w) {
  return SumGroups(x, w, [&](size_t token, size_t n, int begin, int count, size_t at, float* y) {
    const QuantizedRow row = Quantize(&x[token * w.cols + begin], count);
    int64_t sum = 0;
    for (int k = 0; k < count; ++k) sum += int64_t{row.values[k]} * (w.values[n * w.cols + begin + k] - w.zeros[at]);
    *y += static_cast<float>(sum) * (row.scale * w.scales[at]);
  });
}

std::vector<float> Int4FloatLinear(const std::vector<float>& x, const Int4Matrix& w, bool is_fused) {
  const auto multiply_add = [&](float a, float b, float c) { return is_fused ? std::fma(a, b, c) : a * b + c; };
  return SumGroups(x, w, [&](size_t token, size_t n, int begin, int count, size_t at, float* y) {
    float sum = 0;
    for (int k = begin; k < begin + count; ++k) {
      sum = multiply_add(x[token * w.cols + k], static_cast<float>(w.values[n * w.cols + k] - w.zeros[at]), sum);
    }
    *y = multiply_add(sum, w.scales[at], *y);
  });
}

}  // namespace quire::reference
