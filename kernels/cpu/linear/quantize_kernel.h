// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_QUANTIZE_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_QUANTIZE_KERNEL_H_

#include "kernels/byte_scale.h"
#include "kernels/cpu/isa/byte_products.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_task.h"

// Rounding of the inputs of products, and of K and V, to whole numbers of 8 bits.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Returns the largest magnitude, or NaN if there is an infinity or a NaN.
QUIRE_INLINE float LargestMagnitude(const float* x, int n) {
  constexpr int kChains = 4;  // Each operation waits for the one before it in its chain.
  Vec largest[kChains], marked[kChains];
  Unroll<kChains>([&]<int chain>() __attribute__((always_inline)) { largest[chain] = marked[chain] = Zero(); });
  const auto add = [&](Vec v, Vec * most, Vec * mark) __attribute__((always_inline)) {
    *most = Max(*most, Max(v, Sub(Zero(), v)));
    *mark = Add(*mark, Mul(v, Zero()));  // Becomes NaN with an infinity or a NaN, and stays 0 otherwise.
  };
  int i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    Unroll<kChains>([&]<int chain>() __attribute__((always_inline)) {
      add(Load(x + i + chain * kLanes), &largest[chain], &marked[chain]);
    });
  }
  for (; i < n; i += kLanes) add(LoadFirst(x + i, Min(kLanes, n - i)), &largest[0], &marked[0]);
  for (int chain = 1; chain < kChains; ++chain) {
    largest[0] = Max(largest[0], largest[chain]);
    marked[0] = Add(marked[0], marked[chain]);
  }
  return ReduceMax(largest[0]) + ReduceAdd(marked[0]);
}

// Rounds x * 127 / largest magnitude to whole numbers, ties to even, and writes them with zeros from n to the next
// multiple of `step`. Returns their sum. `*scale` becomes NaN, and all numbers 0, if x has an infinity or a NaN.
template <typename Value>
QUIRE_INLINE int32_t QuantizeSpan(const float* x, int n, int step, Value* values, float* scale) {
  const float largest = LargestMagnitude(x, n);
  const bool is_zero = !(largest >= kSmallestMagnitude);  // Also true for a NaN.
  *scale = is_zero ? 0 * largest : largest / 127.0f;
  const int padded = (n + step - 1) / step * step;
  if (is_zero) {
    for (int i = 0; i < padded; ++i) values[i] = 0;
    return 0;
  }
  const Vec inverse = Set(127.0f / largest);
  Vec sum = Zero();  // Whole numbers below 2^24: at most 2^17 / 16 terms of up to 127 in each lane.
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec rounded = Round(Mul(Load(x + i), inverse));
    sum = Add(sum, rounded);
    StoreQuantized(values + i, rounded);
  }
  for (; i < padded; i += kLanes) {
    const Vec rounded = Round(Mul(LoadFirst(x + i, Max(0, Min(kLanes, n - i))), inverse));
    sum = Add(sum, rounded);
    if (padded - i >= kLanes) {
      StoreQuantized(values + i, rounded);
    } else {
      Value last[kLanes];
      StoreQuantized(last, rounded);
      memcpy(values + i, last, (padded - i) * sizeof(Value));
    }
  }
  float lanes[kLanes];
  Store(lanes, sum);
  int32_t total = 0;
  for (const float lane : lanes) total += int32_t(lane);
  return total;
}

inline void QuantizeRow(const float* x, int cols, void* row) {
  QuantizedHeader header;
  auto* values = reinterpret_cast<QuantizedValue*>(static_cast<char*>(row) + kQuantizedHeaderBytes);
  header.offset_sum = kInt8Offset * QuantizeSpan(x, cols, kInt8PanelStep, values, &header.scale);
  memcpy(row, &header, sizeof(header));
}

inline void QuantizeGroups(const QuantizeGroupsTask& task) {
  GroupHeader* header = task.headers;
  for (int begin = 0; begin < task.cols; begin += task.group, ++header) {
    const int n = Min(task.group, task.cols - begin);
    header->sum = float(QuantizeSpan(task.x + begin, n, task.group, task.values + begin, &header->scale));
  }
}

inline void QuantizeHead(const float* x, int dim, int8_t* values, float* scale) {
  QuantizeSpan(x, dim, /*step=*/1, values, scale);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_QUANTIZE_KERNEL_H_
