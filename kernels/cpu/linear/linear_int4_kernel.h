// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT4_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT4_KERNEL_H_

#include "kernels/cpu/linear/linear_kernel.h"
#include "kernels/cpu/linear/nibble_products.h"
#include "kernels/cpu/linear/quantize_kernel.h"

// Products by weights of 4 bits. y is the sum over the groups, in ascending order, of
//   rounded inputs:  (sum of q * w - zero * sum of q) * (scale of the row's group * scale of the column's group)
//   float inputs:    (sum of x * (w - zero), in ascending order of k) * scale of the column's group
// The sums of rounded inputs are whole numbers below 2^24, which are exact as int32 and as float32, and the other
// operations are the same everywhere, so all instruction sets give the same bits. Float inputs need fused multiply-add;
// sets that have it give the same bits.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Bytes of a row of quantize_groups, and of a panel. These types choose the functions below.
enum class GroupedRow : uint8_t {};
enum class Int4Panel : uint8_t {};

// Distance in columns at which weights are prefetched: at least kPrefetchBytes, and whole groups.
constexpr int kColumnsAhead = 256;
static_assert(kColumnsAhead / kMaxInt4Group * Int4GroupBytes(kMaxInt4Group) >= kPrefetchBytes);

// The place of vector `vec` in a group of a panel: scales, zero points and words. `vec` counts as in WeightsAt.
struct Int4Group {
  const uint8_t* begin;
  int vec;

  Vec scales() const { return Load(reinterpret_cast<const float*>(begin) + vec * kLanes); }
  Vec zeros() const { return LoadBytes(begin + kPanelColumns * sizeof(float) + vec * kLanes); }
  const uint8_t* words(int line) const {
    return begin + kInt4HeaderBytes + (line * kPanelColumns + vec * kLanes) * int(sizeof(uint32_t));
  }
};
QUIRE_INLINE Int4Group GroupAt(const LinearTask& task, const Int4Panel* panel, int group, int vec) {
  const Int4Panel* begin =
      panel + (vec / kPanelVecs) * task.w.panel_elements + int64_t{group} * Int4GroupBytes(task.w.group);
  return {reinterpret_cast<const uint8_t*>(begin), vec % kPanelVecs};
}

// Prefetches what is `ahead` bytes after the scales and zero points. Only few rows wait for them, in tiles of several
// panels.
template <int kVecs>
QUIRE_INLINE void PrefetchHeader(const Int4Group& group, int64_t ahead) {
  if constexpr (kVecs > kPanelVecs) {
    __builtin_prefetch(group.begin + group.vec * kLanes * sizeof(float) + ahead);
    if (group.vec == 0) __builtin_prefetch(group.begin + kScalesBytes + ahead);
  }
}

// Sums the products of the columns [begin, end) of a group. `values` are the inputs of the group, and `begin` and `end`
// are multiples of kInt4LineColumns. Meanwhile what is `ahead` bytes after the columns is prefetched.
template <int kRows, int kVecs>
QUIRE_INLINE void SumSpan(const LinearTask& task, const int8_t* values, const Int4Group (&groups)[kVecs], int64_t ahead,
                          int begin, int end, SpanSums (&sum)[kRows][kVecs]) {
  for (int k = begin; k < end; k += kInt4LineColumns) {
    const auto add = [&]<bool kHigh>() __attribute__((always_inline)) {
      NibbleQuads w[kVecs];
      Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
        w[v] = LoadNibbles<kHigh>(groups[v].words(k / kInt4LineColumns));
      });
      Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
        const int8_t* x = values + r * task.x.stride + k + (kHigh ? kInt4LineColumns / 2 : 0);
        Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { sum[r][v] = AddNibbles(sum[r][v], w[v], x); });
      });
    };
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      __builtin_prefetch(groups[v].words(k / kInt4LineColumns) + ahead);
    });
    add.template operator()<false>();
    add.template operator()<true>();
  }
}

// Adds the products of a group to the tile, and prefetches what is `ahead` bytes after the group.
template <int kRows, int kVecs>
QUIRE_INLINE void AddGroup(const LinearTask& task, const GroupedRow* x, const Int4Panel* panel, int first, int group,
                           int64_t ahead, Tile<kRows, kVecs>* tile) {
  Int4Group groups[kVecs];
  Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
    groups[v] = GroupAt(task, panel, group, first + v);
    PrefetchHeader<kVecs>(groups[v], ahead);
  });
  const auto* values = reinterpret_cast<const int8_t*>(x + task.x.header_bytes) + int64_t{group} * task.w.group;
  IntVec sum[kRows][kVecs];
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { sum[r][v] = SetInt(0); });
  });
  for (int begin = 0; begin < task.w.group; begin += kSpanColumns) {
    SpanSums span[kRows][kVecs] = {};
    SumSpan(task, values, groups, ahead, begin, Min(begin + kSpanColumns, task.w.group), span);
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { sum[r][v] = AddSpan(sum[r][v], span[r][v]); });
    });
  }
  Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
    const Vec scale = groups[v].scales(), zero = groups[v].zeros();
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      const GroupHeader& header = reinterpret_cast<const GroupHeader*>(x + r * task.x.stride)[group];
      const Vec exact = Sub(ToFloats(sum[r][v]), Mul(zero, Set(header.sum)));
      tile->sum[r][v] = Add(tile->sum[r][v], Mul(exact, Mul(Set(header.scale), scale)));
    });
  });
}

template <int kRows, int kVecs>
QUIRE_INLINE void MultiplyTile(const LinearTask& task, const GroupedRow* x, const Int4Panel* panel, int first,
                               Columns columns, Tile<kRows, kVecs>* tile) {
  SetZero(tile);
  const int num_groups = (task.cols + task.w.group - 1) / task.w.group;
  // At the end of a panel, the corresponding panel of the next tile is prefetched. Between them are the panels that
  // this tile multiplies at the same time.
  const int groups_ahead = kColumnsAhead / task.w.group;
  const int64_t ahead = groups_ahead * int64_t{Int4GroupBytes(task.w.group)};
  const int64_t ahead_at_end = ahead + (Max(1, kVecs / kPanelVecs) - 1) * task.w.panel_elements;
  const int end = (columns.end + task.w.group - 1) / task.w.group;
  for (int group = columns.begin / task.w.group; group < end; ++group) {
    AddGroup(task, x, panel, first, group, group + groups_ahead < num_groups ? ahead : ahead_at_end, tile);
  }
}

// Adds the products of the first n columns of a line of eight.
template <int kRows, int kVecs>
QUIRE_INLINE void AddLine(const float* x, int64_t x_stride, const Int4Group (&groups)[kVecs], int line, int n,
                          const Vec (&zeros)[kVecs], Tile<kRows, kVecs>* tile) {
  Unroll<kInt4LineColumns>([&]<int k>() __attribute__((always_inline)) {
    if (k >= n) return;
    Vec w[kVecs];
    Unroll<kVecs>([&]<int v>()
                      __attribute__((always_inline)) { w[v] = Sub(NibbleFloats<k>(groups[v].words(line)), zeros[v]); });
    Accumulate(tile, x + k, x_stride, w);
  });
}

template <int kRows, int kVecs>
QUIRE_INLINE void MultiplyTile(const LinearTask& task, const float* x, const Int4Panel* panel, int first,
                               Columns columns, Tile<kRows, kVecs>* tile) {
  SetZero(tile);
  x += columns.begin;
  for (int begin = columns.begin; begin < columns.end; begin += task.w.group, x += task.w.group) {
    const int group = begin / task.w.group;
    Int4Group groups[kVecs];
    Vec zeros[kVecs];
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      groups[v] = GroupAt(task, panel, group, first + v);
      PrefetchHeader<kVecs>(groups[v], kPrefetchBytes);
      zeros[v] = groups[v].zeros();
    });
    Tile<kRows, kVecs> sum;
    SetZero(&sum);
    const int n = Min(task.w.group, columns.end - begin), num_lines = n / kInt4LineColumns;
    for (int line = 0; line < num_lines; ++line) {
      Unroll<kVecs>([&]<int v>()
                        __attribute__((always_inline)) { __builtin_prefetch(groups[v].words(line) + kPrefetchBytes); });
      AddLine(x + line * kInt4LineColumns, task.x.stride, groups, line, kInt4LineColumns, zeros, &sum);
    }
    const int rest = n % kInt4LineColumns;
    if (rest != 0) AddLine(x + num_lines * kInt4LineColumns, task.x.stride, groups, num_lines, rest, zeros, &sum);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const Vec scale = groups[v].scales();
      Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
        tile->sum[r][v] = Fma(sum.sum[r][v], scale, tile->sum[r][v]);
      });
    });
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_INT4_KERNEL_H_
