#ifndef QUIRE_KERNELS_CPU_LINEAR_INT8_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_INT8_KERNEL_H_

#include "kernels/cpu/byte_products.h"
#include "kernels/cpu/linear_kernel.h"

// Products of rounded inputs by int8 weights. The sums of whole numbers are exact, so their order does not matter, and
// every instruction set gives the same bits: float(sum of q * weight) * (scale of the row * scale of the column).
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Bytes of a row of quantize_row, and of a panel. These types choose the functions below.
enum class QuantizedRow : uint8_t {};
enum class Int8Panel : uint8_t {};

QUIRE_INLINE const QuantizedHeader& HeaderOf(const QuantizedRow* row) {
  return *reinterpret_cast<const QuantizedHeader*>(row);
}
QUIRE_INLINE const QuantizedValue* ValuesOf(const QuantizedRow* row) {
  return reinterpret_cast<const QuantizedValue*>(row + kQuantizedHeaderBytes);
}

// A panel of the task, and the place of vector `vec` in it; see WeightsAt.
QUIRE_INLINE const Int8Panel* PanelOf(const LinearTask& task, const Int8Panel* panel, int vec) {
  return panel + (vec / kPanelVecs) * task.panel_elements;
}
QUIRE_INLINE const uint8_t* QuadsAt(const LinearTask& task, const Int8Panel* panel, int64_t quad, int vec) {
  return reinterpret_cast<const uint8_t*>(PanelOf(task, panel, vec)) + kInt8ScaleBytes +
         (quad * kPanelColumns + vec % kPanelVecs * kLanes) * kInt8PanelStep;
}
QUIRE_INLINE Vec ScalesAt(const LinearTask& task, const Int8Panel* panel, int vec) {
  return Load(reinterpret_cast<const float*>(PanelOf(task, panel, vec)) + vec % kPanelVecs * kLanes);
}

// Weights are stored with an offset, so each sum begins with the offset's part, negated.
template <int kRows, int kVecs>
QUIRE_INLINE void MultiplyTile(const LinearTask& task, const QuantizedRow* x, const Int8Panel* panel, int first,
                               Tile<kRows, kVecs>* tile) {
  IntVec sum[kRows][kVecs];
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const IntVec begin = SetInt(-HeaderOf(x + r * task.x_stride).offset_sum);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { sum[r][v] = begin; });
  });
  const int num_quads = (task.cols + kInt8PanelStep - 1) / kInt8PanelStep;
  WeightQuads w[kVecs];
  for (int quad = 0; quad < num_quads; ++quad) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const uint8_t* p = QuadsAt(task, panel, quad, first + v);
      __builtin_prefetch(p + kPrefetchBytes);
      w[v] = LoadQuads(p);
    });
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      const QuantizedValue* values = ValuesOf(x + r * task.x_stride) + quad * kInt8PanelStep;
      Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { sum[r][v] = AddProducts(sum[r][v], w[v], values); });
    });
  }
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const Vec scale = Set(HeaderOf(x + r * task.x_stride).scale);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      tile->sum[r][v] = Mul(ToFloats(sum[r][v]), Mul(scale, ScalesAt(task, panel, first + v)));
    });
  });
}

// A row whose largest magnitude is smaller than this counts as zeros, because 127 / magnitude could be infinite.
constexpr float kSmallestMagnitude = 0x1p-100f;

// Returns the largest magnitude, or NaN if the row contains an infinity or a NaN.
QUIRE_INLINE float LargestMagnitude(const float* x, int n) {
  Vec largest = Zero(), marked = Zero();
  for (int i = 0; i < n; i += kLanes) {
    const Vec v = LoadFirst(x + i, Min(kLanes, n - i));
    largest = Max(largest, Max(v, Sub(Zero(), v)));
    marked = Add(marked, Mul(v, Zero()));  // Becomes NaN with an infinity or a NaN, and stays 0 otherwise.
  }
  return ReduceMax(largest) + ReduceAdd(marked);
}

// Rounds x * 127 / largest magnitude to whole numbers, ties to even.
inline void QuantizeRow(const float* x, int cols, void* row) {
  const float largest = LargestMagnitude(x, cols);
  const bool is_zero = !(largest >= kSmallestMagnitude);  // Also when it is NaN.
  const Vec inverse = Set(is_zero ? 0.0f : 127.0f / largest);
  auto* values = reinterpret_cast<QuantizedValue*>(static_cast<char*>(row) + kQuantizedHeaderBytes);
  Vec sum = Zero();  // Whole numbers below 2^24: at most 2^17 / 16 terms of up to 127 in each lane.
  for (int i = 0; i < cols; i += kLanes) {
    const int n = Min(kLanes, cols - i);
    const Vec rounded = is_zero ? Zero() : Round(Mul(LoadFirst(x + i, n), inverse));
    sum = Add(sum, rounded);
    if (n == kLanes) {
      StoreQuantized(values + i, rounded);
    } else {
      QuantizedValue last[kLanes];
      StoreQuantized(last, rounded);
      memcpy(values + i, last, (n + kInt8PanelStep - 1) / kInt8PanelStep * kInt8PanelStep * sizeof(QuantizedValue));
    }
  }
  float lanes[kLanes];
  Store(lanes, sum);
  int32_t total = 0;
  for (int i = 0; i < kLanes; ++i) total += int32_t(lanes[i]);
  QuantizedHeader header;
  header.scale = is_zero ? 0 * largest : largest / 127.0f;
  header.offset_sum = kInt8Offset * total;
  memcpy(row, &header, sizeof(header));
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_INT8_KERNEL_H_
