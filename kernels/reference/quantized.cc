// SPDX-License-Identifier: Apache-2.0

#include "kernels/reference/quantized.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/dense.h"

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

// Calls add(token, row of w, first column of the group, number of its columns, index of its scale, &sum) for each group
// of each product, in ascending order. Each slice has a sum of its own.
template <typename Matrix, typename AddGroup>
std::vector<float> SumGroups(const std::vector<float>& x, const Matrix& w, AddGroup&& add) {
  std::vector<float> y(x.size() / w.cols * w.rows);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t token = i / w.rows, n = i % w.rows;
    std::vector<float> sums(w.num_slices);
    for (int begin = 0; begin < w.cols; begin += w.group) {
      float* const sum = &sums[begin / (w.cols / w.num_slices)];
      add(token, n, begin, std::min(w.group, w.cols - begin), n * w.num_groups() + begin / w.group, sum);
    }
    y[i] = AddSlices(sums.data(), w.num_slices);
  }
  return y;
}

float MultiplyAdd(float a, float b, float c, bool is_fused) {
  return is_fused ? std::fma(a, b, c) : a * b + c;
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
  return SumGroups(x, w, [&](size_t token, size_t n, int begin, int count, size_t at, float* y) {
    float sum = 0;
    for (int k = begin; k < begin + count; ++k) {
      const auto weight = static_cast<float>(w.values[n * w.cols + k] - w.zeros[at]);
      sum = MultiplyAdd(x[token * w.cols + k], weight, sum, is_fused);
    }
    *y = MultiplyAdd(sum, w.scales[at], *y, is_fused);
  });
}

std::vector<BFloat16> Int4AsBFloat16(const Int4Matrix& w) {
  std::vector<BFloat16> weights;
  for (int n = 0; n < w.rows; ++n) {
    for (int k = 0; k < w.cols; ++k) {
      const size_t at = size_t(n) * w.num_groups() + k / w.group;
      weights.push_back(ToBFloat16(static_cast<float>(w.values[weights.size()] - w.zeros[at]) * w.scales[at]));
    }
  }
  return weights;
}

float Fp8Value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return static_cast<float>((bits & 128) != 0 ? -size : size);
}

std::vector<float> Fp8Linear(const std::vector<float>& x, const Fp8Matrix& w, bool is_fused) {
  return SumGroups(x, w, [&](size_t token, size_t n, int begin, int count, size_t at, float* y) {
    float sum = 0;
    for (int k = begin; k < begin + count; ++k) {
      const float weight = Fp8Value(static_cast<uint8_t>(w.values[n * w.cols + k]));
      sum = MultiplyAdd(x[token * w.cols + k], weight, sum, is_fused);
    }
    *y = MultiplyAdd(sum, w.scales[at], *y, is_fused);
  });
}

void ReadBlocks(BlockMatrix* w) {
  const BlockShape shape = ShapeOf(w->type);
  w->group = shape.group;
  for (size_t at = 0; at < w->blocks.size(); at += shape.bytes) {
    BlockNumbers block;
    UnpackBlock(w->type, &w->blocks[at], &block);
    w->numbers.insert(w->numbers.end(), block.numbers, block.numbers + shape.columns);
    w->scales.push_back(block.scale);
    if (shape.has_minima) w->minima.push_back(block.minimum);
    for (int group = 0; group < shape.columns / shape.group; ++group) {
      w->small_scales.push_back(block.scales[group]);
      if (shape.has_minima) w->small_minima.push_back(block.minima[group]);
    }
  }
}

float BlockMatrix::Weight(int row, int col) const {
  const size_t first = static_cast<size_t>(row) * cols + col;
  const size_t block = first / ShapeOf(type).columns, at = first / group;
  const float weight = scales[block] * static_cast<float>(small_scales[at]) * static_cast<float>(numbers[first]);
  return minima.empty() ? weight : weight - minima[block] * static_cast<float>(small_minima[at]);
}

std::vector<float> BlockLinear(const std::vector<float>& x, const BlockMatrix& w) {
  const int unit = ShapeOf(w.type).columns, blocks = w.cols / unit;
  std::vector<float> y(x.size() / w.cols * w.rows);
  std::vector<QuantizedRow> rows;
  for (size_t at = 0; at < x.size(); at += unit) rows.push_back(Quantize(&x[at], unit));
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t token = i / w.rows, n = i % w.rows;
    std::vector<float> sums(w.num_slices);
    for (int block = 0; block < blocks; ++block) {
      const QuantizedRow& row = rows[token * blocks + block];
      const size_t of_column = n * blocks + block;
      int64_t sum = 0, less = 0;
      for (int k = 0; k < unit; ++k) {
        const size_t at = of_column * unit + k, group = at / w.group;
        sum += int64_t{row.values[k]} * w.numbers[at] * w.small_scales[group];
        if (!w.minima.empty()) less += int64_t{row.values[k]} * w.small_minima[group];
      }
      float& y_slice = sums[block / (blocks / w.num_slices)];
      y_slice += static_cast<float>(sum) * (row.scale * w.scales[of_column]);
      if (!w.minima.empty()) y_slice -= static_cast<float>(less) * (row.scale * w.minima[of_column]);
    }
    y[i] = AddSlices(sums.data(), w.num_slices);
  }
  return y;
}

}  // namespace quire::reference
