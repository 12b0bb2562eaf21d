// SPDX-License-Identifier: Apache-2.0

#include "kernels/reference/dense.h"

#include <algorithm>
#include <cmath>

#include "kernels/linear.h"

namespace quire::reference {

std::vector<double> Linear(const std::vector<double>& x, const std::vector<double>& w, int cols) {
  const size_t rows_x = x.size() / cols, rows_w = w.size() / cols;
  std::vector<double> y(rows_x * rows_w, 0);
  for (size_t i = 0; i < rows_x; ++i) {
    for (size_t j = 0; j < rows_w; ++j) {
      for (int k = 0; k < cols; ++k) y[i * rows_w + j] += x[i * cols + k] * w[j * cols + k];
    }
  }
  return y;
}

float AddSlices(const float* sums, int count) {
  return count == 1 ? *sums : AddSlices(sums, count / 2) + AddSlices(sums + count / 2, count / 2);
}

std::vector<float> SlicedLinear(const std::vector<float>& x, const std::vector<float>& w, int cols, int num_slices,
                                bool is_fused) {
  const size_t rows_x = x.size() / cols, rows_w = w.size() / cols;
  std::vector<float> y;
  for (size_t i = 0; i < rows_x * rows_w; ++i) {
    const float *const a = &x[i / rows_w * cols], *const b = &w[i % rows_w * cols];
    std::vector<float> sums(num_slices);
    for (int k = 0; k < cols; ++k) {
      float* const sum = &sums[k / (cols / num_slices)];
      *sum = is_fused ? std::fma(a[k], b[k], *sum) : *sum + a[k] * b[k];
    }
    y.push_back(AddSlices(sums.data(), num_slices));
  }
  return y;
}

std::vector<double> RmsNorm(const std::vector<double>& x, const std::vector<double>& weight, double epsilon) {
  const size_t dim = weight.size();
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += dim) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += x[row + i] * x[row + i];
    for (size_t i = 0; i < dim; ++i) y[row + i] = x[row + i] / std::sqrt(squares / double(dim) + epsilon) * weight[i];
  }
  return y;
}

std::vector<double> SiluMul(const std::vector<double>& x, int dim) {
  std::vector<double> y(x.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t gate = i / dim * 2 * dim + i % dim;
    y[i] = x[gate] / (1 + std::exp(-x[gate])) * x[gate + dim];
  }
  return y;
}

std::vector<double> GeluTanhMul(const std::vector<double>& x, int dim) {
  constexpr double kPi = 3.14159265358979323846;
  std::vector<double> y(x.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t gate = i / dim * 2 * dim + i % dim;
    const double a = x[gate];
    y[i] = 0.5 * a * (1 + std::tanh(std::sqrt(2 / kPi) * (a + 0.044715 * a * a * a))) * x[gate + dim];
  }
  return y;
}

std::vector<double> ClampedSwiglu(const std::vector<double>& x, int dim) {
  std::vector<double> y(x.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t gate = i / dim * 2 * dim + i % dim;
    const double limit = kSwigluLimit, a = std::min(x[gate], limit), up = std::clamp(x[gate + dim], -limit, limit);
    y[i] = a / (1 + std::exp(-double{kSwigluAlpha} * a)) * (up + 1);
  }
  return y;
}

double Softcap(double x, double cap) {
  return cap * std::tanh(x / cap);
}

void Rotate(int position, const std::vector<double>& inv_freq, double scaling, double* head) {
  const size_t half = inv_freq.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * inv_freq[i];
    const double a = head[i], b = head[half + i];
    head[i] = scaling * (a * std::cos(angle) - b * std::sin(angle));
    head[half + i] = scaling * (b * std::cos(angle) + a * std::sin(angle));
  }
}

std::vector<double> Attend(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
                           int begin, int end, double scale, double softcap, double sink) {
  const size_t dim = q.size();
  std::vector<double> scores(end - begin, 0), out(dim, 0);
  for (int t = begin; t < end; ++t) {
    for (size_t d = 0; d < dim; ++d) scores[t - begin] += q[d] * k[t * dim + d] * scale;
    if (softcap > 0) scores[t - begin] = Softcap(scores[t - begin], softcap);
  }
  const double max = std::max(sink, *std::max_element(scores.begin(), scores.end()));
  double sum = std::exp(sink - max);
  for (double& score : scores) sum += score = std::exp(score - max);
  for (int t = begin; t < end; ++t) {
    for (size_t d = 0; d < dim; ++d) out[d] += scores[t - begin] / sum * v[t * dim + d];
  }
  return out;
}

}  // namespace quire::reference
