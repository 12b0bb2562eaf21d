// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_CONVERTED_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_CONVERTED_KERNEL_H_

#include <type_traits>

#include "kernels/cpu/linear/fp8_products.h"
#include "kernels/cpu/linear/linear_kernel.h"

// Products by weights that are numbers with a scale for each group, where the numbers are exact as bfloat16: FP8, and 4
// bits less their zero point. y is the sum over the groups, in ascending order, of
//   (sum of x * number) * scale of the column's group
// with one rounding for each product and its addition. The sum of a group is what a product by the numbers as bfloat16
// gives. The first tile of rows converts the numbers in registers. If there are more tiles, it also stores them for the
// other tiles. All tiles add in the same order.
//
// `Numbers` says how a panel holds its numbers:
//   PlaceOf, Place     the place of a group: its scales, and its lines of kLineBytes, alternately for the first and the
//                      last 16 columns of the panel, of kLineColumns k each
//   ReadGroup, Group   what all lines of 16 columns of a group need
//   ReadLine, Line     a line, whose Pair<i>(group) are its columns 2 i and 2 i + 1.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// A panel is converted in registers, is stored in LinearTask::scratch as bfloat16 as well, or is there already.
enum class Conversion { kInRegisters, kStored, kDone };
constexpr int kCacheLineBytes = 64;

// A byte of a panel.
template <typename Numbers, Conversion kConversion>
struct NumberPanel {
  uint8_t byte;
};

// A group whose lines follow a header that begins with 32 scales in float32.
template <int kHeaderBytes>
struct GroupPlace {
  const uint8_t* at;

  QUIRE_INLINE const uint8_t* lines() const { return at + kHeaderBytes; }
  QUIRE_INLINE Vec Scale(int half) const { return Load(reinterpret_cast<const float*>(at) + half * kLanes); }
};

// A group of a converted panel: 32 scales and pairs.
struct ConvertedNumbers {
  using Place = GroupPlace<kScalesBytes>;
  static QUIRE_INLINE Place PlaceOf(const uint8_t* panel, int group, int group_columns) {
    return {panel + int64_t{group} * ConvertedGroupBytes(group_columns)};
  }
};
using ConvertedPanel = NumberPanel<ConvertedNumbers, Conversion::kDone>;

// Group `group` of the panel that has vector `vec`, which counts as in WeightsAt.
template <typename Numbers, Conversion kConversion>
QUIRE_INLINE typename Numbers::Place NumbersAt(const LinearTask& task, const NumberPanel<Numbers, kConversion>* panel,
                                               int group, int vec) {
  return Numbers::PlaceOf(&panel[(vec / kPanelVecs) * task.w.panel_elements].byte, group, task.w.group);
}
// The place of columns k and k + 1 of vector `vec` after the header of a group of a converted panel.
QUIRE_INLINE int64_t PairBytes(int k, int vec) {
  return (k * kPanelColumns + vec % kPanelVecs * (2 * kLanes)) * int64_t(sizeof(BFloat16));
}

// The parts of a group that the vectors of a tile multiply.
template <typename Numbers, int kVecs>
struct Groups {
  typename Numbers::Group of[kVecs];

  QUIRE_INLINE Groups(const typename Numbers::Place (&places)[kVecs], int first) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      of[v] = Numbers::ReadGroup(places[v], (first + v) % kPanelVecs);
    });
  }
};

// Adds the products of a pair of columns, or of its first column, to the vectors of the tile from kFirst on.
template <bool kIsWhole, int kFirst, typename Pairs, int kCount, int kRows, int kVecs>
QUIRE_INLINE void AddPair(const float* x, int64_t x_stride, const Pairs (&pairs)[kCount], Tile<kRows, kVecs>* tile) {
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

// Adds the products of the first kColumns of a line, whose columns begin at k in a group. `first` is the first vector
// of the tile, and `stored` is the place of the group in a converted panel.
template <typename Numbers, Conversion kConversion, int kColumns, int kRows, int kVecs, typename X>
QUIRE_INLINE void AddLine(const LinearTask& task, const typename Numbers::Place (&places)[kVecs],
                          const Groups<Numbers, kVecs>& groups, int64_t stored, int first, const X* x, int k,
                          Tile<kRows, kVecs>* tile) {
  constexpr int kCount = kVecs < kPanelVecs ? kVecs : kPanelVecs;
  Unroll<kVecs / kCount>([&]<int part>() __attribute__((always_inline)) {
    constexpr int kFirst = part * kCount;
    typename Numbers::Line lines[kCount];
    Unroll<kCount>([&]<int v>() __attribute__((always_inline)) {
      const int line = k / Numbers::kLineColumns * kPanelVecs + (first + kFirst + v) % kPanelVecs;
      const uint8_t* p = places[kFirst + v].lines() + line * Numbers::kLineBytes;
      Unroll<Numbers::kLineBytes / kCacheLineBytes>([&]<int i>() __attribute__((always_inline)) {
        __builtin_prefetch(p + kPrefetchBytes + i * kCacheLineBytes);
      });
      lines[v] = Numbers::ReadLine(p);
    });
    Unroll<(kColumns + 1) / 2>([&]<int pair>() __attribute__((always_inline)) {
      decltype(lines[0].template Pair<pair>(groups.of[0])) pairs[kCount];
      Unroll<kCount>([&]<int v>() __attribute__((always_inline)) {
        pairs[v] = lines[v].template Pair<pair>(groups.of[kFirst + v]);
        if constexpr (kConversion == Conversion::kStored) {
          auto* const to = static_cast<uint8_t*>(task.scratch) + stored;
          StorePairs(reinterpret_cast<BFloat16*>(to + PairBytes(k + 2 * pair, first + kFirst + v)), pairs[v]);
        }
      });
      AddPair<(kColumns > 2 * pair + 1), kFirst>(x + k + 2 * pair, task.x.stride, pairs, tile);
    });
  });
}

// Adds the products of the first n < kMost columns of a line.
template <typename Numbers, Conversion kConversion, int kMost, int kRows, int kVecs, typename X>
QUIRE_INLINE void AddFirstColumns(const LinearTask& task, const typename Numbers::Place (&places)[kVecs],
                                  const Groups<Numbers, kVecs>& groups, int64_t stored, int first, const X* x, int k,
                                  int n, Tile<kRows, kVecs>* tile) {
  Unroll<kMost - 1>([&]<int i>() __attribute__((always_inline)) {
    if (n == i + 1) AddLine<Numbers, kConversion, i + 1>(task, places, groups, stored, first, x, k, tile);
  });
}

// Adds the products of the first n columns of a group.
template <typename Numbers, Conversion kConversion, int kRows, int kVecs, typename X>
QUIRE_INLINE void AddColumns(const LinearTask& task, int group, const typename Numbers::Place (&places)[kVecs],
                             int first, const X* x, int n, Tile<kRows, kVecs>* tile) {
  if constexpr (kConversion == Conversion::kDone) {
    const auto at = [&]<int v>(int k) __attribute__((always_inline)) {
      return reinterpret_cast<const BFloat16*>(places[v].lines() + PairBytes(k, first + v));
    };
    AccumulatePairs(x, task.x.stride, {0, n}, at, OwnFetch<kPrefetchBytes>(), tile);
  } else {
    constexpr int kLine = Numbers::kLineColumns;
    const Groups<Numbers, kVecs> groups(places, first);
    const int64_t stored = int64_t{group} * ConvertedGroupBytes(task.w.group) + kScalesBytes;
    // Zeros follow in rows of bfloat16, so every line is whole.
    constexpr bool kIsPadded = std::is_same_v<X, BFloat16>;
    int k = 0;
    for (; kIsPadded ? k < n : k + kLine <= n; k += kLine) {
      AddLine<Numbers, kConversion, kLine>(task, places, groups, stored, first, x, k, tile);
    }
    if constexpr (!kIsPadded) {
      AddFirstColumns<Numbers, kConversion, kLine>(task, places, groups, stored, first, x, k, n - k, tile);
    }
  }
}

template <int kRows, int kVecs, typename X, typename Numbers, Conversion kConversion>
QUIRE_INLINE void MultiplyTile(const LinearTask& task, const X* x, const NumberPanel<Numbers, kConversion>* panel,
                               int first, Columns columns, Tile<kRows, kVecs>* tile) {
  SetZero(tile);
  for (int begin = columns.begin; begin < columns.end; begin += task.w.group) {
    const int group = begin / task.w.group;
    typename Numbers::Place places[kVecs];
    Unroll<kVecs>([&]<int v>()
                      __attribute__((always_inline)) { places[v] = NumbersAt(task, panel, group, first + v); });
    Tile<kRows, kVecs> sum;
    SetZero(&sum);
    const int n = Min(task.w.group, columns.end - begin);
    AddColumns<Numbers, kConversion>(task, group, places, first, x + begin, n, &sum);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const Vec scale = places[v].Scale((first + v) % kPanelVecs);
      Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
        tile->sum[r][v] = Fma(sum.sum[r][v], scale, tile->sum[r][v]);
      });
    });
  }
}

// Copies the scales of a panel to where it is converted.
template <typename Numbers>
void CopyScales(const LinearTask& task, int index) {
  const auto* const panel = static_cast<const uint8_t*>(task.w.panels) + index * task.w.panel_elements;
  auto* to = static_cast<uint8_t*>(task.scratch);
  for (int group = 0; group * task.w.group < task.cols; ++group) {
    const typename Numbers::Place place = Numbers::PlaceOf(panel, group, task.w.group);
    for (int half = 0; half < kPanelVecs; ++half) {
      Store(reinterpret_cast<float*>(to) + half * kLanes, place.Scale(half));
    }
    to += ConvertedGroupBytes(task.w.group);
  }
}

template <typename X, typename Numbers>
void LinearConverted(const LinearTask& task) {
  const int num_tiles = NumRowTiles(task.num_rows);
  if (num_tiles == 1) return Linear<X, NumberPanel<Numbers, Conversion::kInRegisters>>(task);
  const int rows = (task.num_rows + num_tiles - 1) / num_tiles;
  LinearTask converted = task;
  converted.w.panels = task.scratch;
  converted.w.panel_elements = 0;  // Every panel is converted to the same place.
  for (int index = 0; index < task.num_panels; ++index) {
    CopyScales<Numbers>(task, index);
    DispatchRows<kMaxTileRows, X, NumberPanel<Numbers, Conversion::kStored>, kLeastRowsOfSeveral>(task, /*row=*/0, rows,
                                                                                                  index, index + 1);
    MultiplyRowTiles<X, ConvertedPanel, kLeastRowsOfSeveral>(converted, rows, index, index + 1);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_CONVERTED_KERNEL_H_
