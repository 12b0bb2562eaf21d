// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT8_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT8_KERNEL_H_

#include "kernels/cpu/isa/byte_products.h"
#include "kernels/cpu/linear/linear_kernel.h"
#include "kernels/cpu/linear/quantize_kernel.h"

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
  return panel + (vec / kPanelVecs) * task.w.panel_elements;
}
QUIRE_INLINE const uint8_t* QuadsAt(const LinearTask& task, const Int8Panel* panel, int64_t quad, int vec) {
  return reinterpret_cast<const uint8_t*>(PanelOf(task, panel, vec)) + kInt8ScaleBytes +
         (quad * kPanelColumns + vec % kPanelVecs * kLanes) * kInt8QuadColumns;
}
QUIRE_INLINE Vec ScalesAt(const LinearTask& task, const Int8Panel* panel, int vec) {
  return Load(reinterpret_cast<const float*>(PanelOf(task, panel, vec)) + vec % kPanelVecs * kLanes);
}

// Weights are stored with an offset, so each sum begins with the offset's part, negated. There is one slice.
template <int kRows, int kVecs>
QUIRE_INLINE void MultiplyTile(const LinearTask& task, const QuantizedRow* x, const Int8Panel* panel, int first,
                               Columns columns, Tile<kRows, kVecs>* tile) {
  IntVec sum[kRows][kVecs];
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const IntVec begin = SetInt(-HeaderOf(x + r * task.x.stride).offset_sum);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { sum[r][v] = begin; });
  });
  const int num_quads = (columns.end + kInt8QuadColumns - 1) / kInt8QuadColumns;
  const auto multiply = [&](auto fetch) __attribute__((always_inline)) {
    WeightQuads w[kVecs];
    for (int quad = 0; quad < num_quads; ++quad) {
      Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
        const uint8_t* p = QuadsAt(task, panel, quad, first + v);
        fetch.template Prefetch<v>(p);
        w[v] = LoadQuads(p);
      });
      fetch.NextRow();
      Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
        const QuantizedValue* values = ValuesOf(x + r * task.x.stride) + quad * kInt8QuadColumns;
        Unroll<kVecs>([&]<int v>()
                          __attribute__((always_inline)) { sum[r][v] = AddProducts(sum[r][v], w[v], values); });
      });
    }
  };
  const PanelRows rows{.num = num_quads, .bytes = kPanelColumns * kInt8QuadColumns};
  MultiplyAndFetch<kRows, kVecs, kPrefetchBytes>(task.w.fetch, first, rows, /*row=*/0, multiply);
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const Vec scale = Set(HeaderOf(x + r * task.x.stride).scale);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      tile->sum[r][v] = Mul(ToFloats(sum[r][v]), Mul(scale, ScalesAt(task, panel, first + v)));
    });
  });
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT8_KERNEL_H_
