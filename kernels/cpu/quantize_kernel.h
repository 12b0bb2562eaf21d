// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_QUANTIZE_KERNEL_H_
#define QUIRE_KERNELS_CPU_QUANTIZE_KERNEL_H_

#include "kernels/cpu/byte_products.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd.h"

// Rounding of the inputs of products, and of K and V, to whole numbers of 8 bits.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Numbers whose largest magnitude is smaller than this count as zeros, because 127 / magnitude could be infinite.
constexpr float kSmallestMagnitude = 0x1p-100f;

// Returns the largest magnitude, or NaN if there is an infinity or a NaN.
QUIRE_INLINE float LargestMagnitude(const float* x, int n) {
  Vec largest = Zero(), marked = Zero();
  for (int i = 0; i < n; i += kLanes) {
    const Vec v = LoadFirst(x + i, Min(kLanes, n - i));
    largest = Max(largest, Max(v, Sub(Zero(), v)));
    marked = Add(marked, Mul(v, Zero()));  // Becomes NaN with an infinity or a NaN, and stays 0 otherwise.
  }
  return ReduceMax(largest) + ReduceAdd(marked);
}

// Rounds x * 127 / largest magnitude to whole numbers, ties to even, and writes them with zeros from n to the next
// multiple of `step`. Returns their sum. `*scale` becomes NaN, and all numbers 0, if x has an infinity or a NaN.
template <typename Value>
QUIRE_INLINE int32_t QuantizeSpan(const float* x, int n, int step, Value* values, float* scale) {
  const float largest = LargestMagnitude(x, n);
  const bool is_zero = !(largest >= kSmallestMagnitude);  // Also when it is NaN.
  const Vec inverse = Set(is_zero ? 0.0f : 127.0f / largest);
  *scale = is_zero ? 0 * largest : largest / 127.0f;
  const int padded = (n + step - 1) / step * step;
  Vec sum = Zero();  // Whole numbers below 2^24: at most 2^17 / 16 terms of up to 127 in each lane.
  for (int i = 0; i < padded; i += kLanes) {
    const Vec part = LoadFirst(x + i, Max(0, Min(kLanes, n - i)));
    const Vec rounded = is_zero ? Zero() : Round(Mul(part, inverse));
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
  for (int i = 0; i < kLanes; ++i) total += int32_t(lanes[i]);
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

#endif  // QUIRE_KERNELS_CPU_QUANTIZE_KERNEL_H_
