// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_FP8_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_FP8_KERNEL_H_

#include <type_traits>

#include "kernels/cpu/fp8_products.h"
#include "kernels/cpu/linear_kernel.h"

// Products by weights of FP8, which are exact as bfloat16. y is the sum over the groups, in ascending order, of
//   (sum of x * number) * scale of the column's group
// with one rounding for the product and the addition. The sum of a group is what a product by the numbers as bfloat16
// gives. The first tile of rows converts the numbers in registers. If there are more tiles, it also stores them for the
// other tiles. All tiles add in the same order.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Bytes of a panel; of a panel that is stored in LinearTask::scratch as bfloat16 while it is multiplied; and of a panel
// there. These types choose the functions below.
enum class Fp8Panel : uint8_t {};
enum class StoredFp8Panel : uint8_t {};
enum class ConvertedPanel : uint8_t {};

template <typename W>
constexpr bool kIsFp8 = false;
template <>
constexpr bool kIsFp8<Fp8Panel> = true;
template <>
constexpr bool kIsFp8<StoredFp8Panel> = true;
template <>
constexpr bool kIsFp8<ConvertedPanel> = true;

template <typename Panel>
constexpr bool kIsConverted = std::is_same_v<Panel, ConvertedPanel>;

// A group of the panel that has vector `vec`, which counts as in WeightsAt. Groups begin with their scales.
template <typename Panel>
QUIRE_INLINE const uint8_t* Fp8GroupAt(const LinearTask& task, const Panel* panel, int group, int vec) {
  const int bytes = kIsConverted<Panel> ? ConvertedGroupBytes(task.group) : Fp8GroupBytes(task.group);
  return reinterpret_cast<const uint8_t*>(panel + (vec / kPanelVecs) * task.panel_elements + int64_t{group} * bytes);
}
// The place of columns k and k + 1 of vector `vec` in a group of a converted panel.
QUIRE_INLINE int64_t PairBytes(int k, int vec) {
  return kFp8HeaderBytes + (k * kPanelColumns + vec % kPanelVecs * (2 * kLanes)) * int64_t(sizeof(BFloat16));
}

// Adds the products of a pair of columns, or of its first column, to the vectors of the tile from kFirst on.
template <bool kIsWhole, int kFirst, int kCount, int kRows, int kVecs>
QUIRE_INLINE void AddPair(const float* x, int64_t x_stride, const WeightPairs (&pairs)[kCount],
                          Tile<kRows, kVecs>* tile) {
  Vec even[kCount], odd[kCount];
  Unroll<kCount>([&]<int v>() __attribute__((always_inline)) { SplitPairs(pairs[v], &even[v], &odd[v]); });
  const auto add = [&](const float* from, const Vec(&w)[kCount]) __attribute__((always_inline)) {
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      const Vec value = Set(from[r * x_stride]);
      Unroll<kCount>([&]<int v>() __attribute__((always_inline)) {
        tile->sum[r][kFirst + v] = Fma(value, w[v], tile->sum[r][kFirst + v]);
      });
    });
  };
  add(x, even);
  if constexpr (kIsWhole) add(x + 1, odd);
}

// Adds the products of the first kColumns of the four columns k .. k + 3 of a group. `first` is the first vector of the
// tile, and `stored` is the place of the group in a converted panel.
template <typename Panel, int kColumns, int kRows, int kVecs, typename X>
QUIRE_INLINE void AddLine(const LinearTask& task, const uint8_t* const (&groups)[kVecs], int64_t stored, int first,
                          const X* x, int k, Tile<kRows, kVecs>* tile) {
  constexpr int kCount = kVecs < kPanelVecs ? kVecs : kPanelVecs;
  Unroll<kVecs / kCount>([&]<int part>() __attribute__((always_inline)) {
    constexpr int kFirst = part * kCount;
    WeightPairs low[kCount], high[kCount];
    Unroll<kCount>([&]<int v>() __attribute__((always_inline)) {
      const int vec = first + kFirst + v;
      const uint8_t* p = groups[kFirst + v] + kFp8HeaderBytes + k * kPanelColumns + vec % kPanelVecs * kFp8LineBytes;
      __builtin_prefetch(p + kPrefetchBytes);
      LoadFp8(p, &low[v], &high[v]);
      if constexpr (std::is_same_v<Panel, StoredFp8Panel>) {
        auto* to = static_cast<uint8_t*>(task.scratch) + stored;
        StorePairs(reinterpret_cast<BFloat16*>(to + PairBytes(k, vec)), low[v]);
        StorePairs(reinterpret_cast<BFloat16*>(to + PairBytes(k + 2, vec)), high[v]);
      }
    });
    AddPair<(kColumns > 1), kFirst>(x + k, task.x_stride, low, tile);
    if constexpr (kColumns > 2) AddPair<(kColumns > 3), kFirst>(x + k + 2, task.x_stride, high, tile);
  });
}

// Adds the products of the first n columns of a group.
template <typename Panel, int kRows, int kVecs, typename X>
QUIRE_INLINE void AddColumns(const LinearTask& task, int group, const uint8_t* const (&groups)[kVecs], int first,
                             const X* x, int n, Tile<kRows, kVecs>* tile) {
  const int64_t stored = int64_t{group} * ConvertedGroupBytes(task.group);
  int k = 0;
  for (; k + kFp8LineColumns <= n; k += kFp8LineColumns) {
    AddLine<Panel, kFp8LineColumns>(task, groups, stored, first, x, k, tile);
  }
  if (n - k == 1) AddLine<Panel, 1>(task, groups, stored, first, x, k, tile);
  if (n - k == 2) AddLine<Panel, 2>(task, groups, stored, first, x, k, tile);
  if (n - k == 3) AddLine<Panel, 3>(task, groups, stored, first, x, k, tile);
}
template <typename Panel, int kRows, int kVecs, typename X>
requires kIsConverted<Panel> QUIRE_INLINE void AddColumns(const LinearTask& task, int /*group*/,
                                                          const uint8_t* const (&groups)[kVecs], int first, const X* x,
                                                          int n, Tile<kRows, kVecs>* tile) {
  const auto at = [&]<int v>(int k) __attribute__((always_inline)) {
    return reinterpret_cast<const BFloat16*>(groups[v] + PairBytes(k, first + v));
  };
  AccumulatePairs(x, task.x_stride, {0, n}, at, tile);
}

template <int kRows, int kVecs, typename X, typename Panel>
requires kIsFp8<Panel> QUIRE_INLINE void MultiplyTile(const LinearTask& task, const X* x, const Panel* panel, int first,
                                                      Columns columns, Tile<kRows, kVecs>* tile) {
  SetZero(tile);
  x += columns.begin;
  for (int begin = columns.begin; begin < columns.end; begin += task.group, x += task.group) {
    const int group = begin / task.group;
    const uint8_t* groups[kVecs];
    Unroll<kVecs>([&]<int v>()
                      __attribute__((always_inline)) { groups[v] = Fp8GroupAt(task, panel, group, first + v); });
    Tile<kRows, kVecs> sum;
    SetZero(&sum);
    AddColumns<Panel>(task, group, groups, first, x, Min(task.group, columns.end - begin), &sum);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const Vec scale = Load(reinterpret_cast<const float*>(groups[v]) + (first + v) % kPanelVecs * kLanes);
      Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
        tile->sum[r][v] = Fma(sum.sum[r][v], scale, tile->sum[r][v]);
      });
    });
  }
}

inline void CopyScales(const LinearTask& task, int index) {
  const auto* from = static_cast<const uint8_t*>(task.panels) + index * task.panel_elements;
  auto* to = static_cast<uint8_t*>(task.scratch);
  for (int k = 0; k < task.cols; k += task.group) {
    memcpy(to, from, kFp8HeaderBytes);
    from += Fp8GroupBytes(task.group);
    to += ConvertedGroupBytes(task.group);
  }
}

template <typename X>
void LinearFp8(const LinearTask& task) {
  const int num_tiles = NumRowTiles(task.num_rows);
  if (num_tiles == 1) return Linear<X, Fp8Panel>(task);
  constexpr int kLeast = kMaxTileRows / 2;  // Rows of a tile, if there are several tiles.
  const int rows = (task.num_rows + num_tiles - 1) / num_tiles;
  LinearTask converted = task;
  converted.panels = task.scratch;
  converted.panel_elements = 0;  // Every panel is converted to the same place.
  for (int index = 0; index < task.num_panels; ++index) {
    CopyScales(task, index);
    DispatchRows<kMaxTileRows, X, StoredFp8Panel, kLeast>(task, /*row=*/0, rows, index, index + 1);
    MultiplyRowTiles<X, ConvertedPanel, kLeast>(converted, rows, index, index + 1);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_FP8_KERNEL_H_
