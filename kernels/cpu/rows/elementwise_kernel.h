// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ROWS_ELEMENTWISE_KERNEL_H_
#define QUIRE_KERNELS_CPU_ROWS_ELEMENTWISE_KERNEL_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/vector_math.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/rows/expert_sum_task.h"

// Operations on single rows: norm, rotation, conversion, the sum of experts.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Returns the sum of squares. Four accumulators each add every fourth vector, and they are joined in one fixed order.
QUIRE_INLINE float SumOfSquares(const float* x, int dim) {
  Vec sum[4] = {Zero(), Zero(), Zero(), Zero()};
  int i = 0;
  for (; i + 4 * kLanes <= dim; i += 4 * kLanes) {
    Unroll<4>([&]<int j>() __attribute__((always_inline)) {
      const Vec v = Load(x + i + j * kLanes);
      sum[j] = Fma(v, v, sum[j]);
    });
  }
  for (; i < dim; i += kLanes) {
    const Vec v = LoadFirst(x + i, Min(kLanes, dim - i));
    sum[0] = Fma(v, v, sum[0]);
  }
  return ReduceAdd(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}

template <typename T>
void RmsNorm(const float* x, const float* weight, const float* residual, void* y, int dim, float epsilon) {
  const float mean = SumOfSquares(x, dim) / float(dim);
  const Vec inverse = Div(Set(1.0f), Sqrt(Set(mean + epsilon)));
  for (int i = 0; i < dim; i += kLanes) {
    const int n = Min(kLanes, dim - i);
    const Vec normed = Mul(Mul(LoadFirst(x + i, n), inverse), LoadFirst(weight + i, n));
    StoreFirst(static_cast<T*>(y) + i, n, residual == nullptr ? normed : Add(normed, LoadFirst(residual + i, n)));
  }
}

inline void RotateHalf(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; i += kLanes) {
    const int n = Min(kLanes, half - i);
    const Vec a = LoadFirst(x + i, n), b = LoadFirst(x + half + i, n);
    const Vec c = LoadFirst(cos + i, n), s = LoadFirst(sin + i, n);
    StoreFirst(x + i, n, Sub(Mul(a, c), Mul(b, s)));
    StoreFirst(x + half + i, n, Add(Mul(b, c), Mul(a, s)));
  }
}

template <typename T>
void Convert(const float* from, void* to, int n) {
  T* out = static_cast<T*>(to);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, Load(from + i));
  if (i < n) StoreFirst(out + i, n - i, LoadFirst(from + i, n - i));
}

template <typename T>
void Widen(const void* from, float* to, int n) {
  const T* in = static_cast<const T*>(from);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(to + i, Load(in + i));
  for (; i < n; ++i) to[i] = ToFloat(in[i]);
}

inline void SumExperts(const ExpertSumTask& task) {
  for (int i = 0; i < task.dim; i += kLanes) {
    const int n = Min(kLanes, task.dim - i);
    alignas(64) float sums[kExpertRanges * kLanes] = {};
    for (int k = 0; k < task.count; ++k) {
      float* const sum = sums + task.ranges[k] * kLanes;
      Store(sum, Fma(Set(task.weights[k]), LoadFirst(task.rows[k] + i, n), Load(sum)));
    }
    Vec y = SliceTree<kExpertRanges>(sums, kLanes);
    if (task.shared != nullptr) y = Fma(Set(task.shared_weight), LoadFirst(task.shared + i, n), y);
    if (task.residual != nullptr) y = Add(y, LoadFirst(task.residual + i, n));
    StoreFirst(task.y + i, n, y);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ROWS_ELEMENTWISE_KERNEL_H_
