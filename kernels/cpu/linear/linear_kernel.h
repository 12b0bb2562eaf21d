// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_KERNEL_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/linear/linear_task.h"

// Multiplication of rows of X by packed weights W. A tile of kRows x kVecs vectors of accumulators stays in registers
// over all of k.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Distance in bytes at which weights are prefetched, if one tile of rows reads them from memory.
constexpr int kPrefetchBytes = 4096;
// A tile of half a panel needs little time for the same bytes, so pairs are prefetched at a greater distance.
constexpr int kPairPrefetchBytes = kRegisters >= 32 ? kPrefetchBytes : 3 * kPrefetchBytes;
constexpr int kPanelVecs = kPanelColumns / kLanes;

// The largest number of rows of a tile, and the number of its vectors of columns for a given number of rows. A tile
// uses all registers, except one or two for weights and one for x. With few rows a tile has several panels, because the
// multiplier needs enough independent sums. With many rows and few registers a tile has only half a panel.
constexpr int kMaxTileRows = kRegisters >= 32 ? 12 : kRegisters >= 8 ? 6 : 3;
// Smallest number of rows of a tile if there are several of them (MultiplyRowTiles).
constexpr int kLeastRowsOfSeveral = kMaxTileRows / 2;
constexpr int TileVecs(int rows) {
  if (kRegisters >= 32) return rows <= 2 ? 8 : rows <= 4 ? 6 : rows <= 6 ? 4 : 2;
  if (kRegisters >= 8) return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  return rows == 1 ? 2 : 1;
}

template <typename W>
constexpr int kStep = 1;  // Number of consecutive k in one row of a panel.
template <>
constexpr int kStep<BFloat16> = 2;

// True where one load reads floats of one k.
template <typename W>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<Float16> = true;

template <int kRows, int kVecs>
struct Tile {
  Vec sum[kRows][kVecs];
};

template <int kRows, int kVecs>
QUIRE_INLINE void SetZero(Tile<kRows, kVecs>* tile) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { tile->sum[r][v] = Zero(); });
  });
}

template <int kRows, int kVecs>
QUIRE_INLINE void Accumulate(Tile<kRows, kVecs>* tile, const float* x, int64_t x_stride, const Vec (&w)[kVecs]) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const Vec value = Set(x[r * x_stride]);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { FmaInPlace(value, w[v], &tile->sum[r][v]); });
  });
}

// Returns the position of vector `vec` in panel row `row`. `vec` counts from the first vector of the tile's first
// panel, and a tile of half a panel may start at the second vector.
template <int kStepSize, typename W>
QUIRE_INLINE const W* WeightsAt(const LinearTask& task, const W* panel, int64_t row, int vec) {
  return panel + (vec / kPanelVecs) * task.w.panel_elements + row * (kPanelColumns * kStepSize) +
         (vec % kPanelVecs) * (kLanes * kStepSize);
}

// Columns of k that a tile multiplies: a slice.
struct Columns {
  int begin;
  int end;
};

// Rows of a panel, and the bytes of each. A row has the weights of one k, of a pair of k, or of four k.
struct PanelRows {
  int num;
  int bytes;
};
template <typename W>
QUIRE_INLINE PanelRows RowsOf(int cols) {
  return {(cols + kStep<W> - 1) / kStep<W>, kPanelColumns * kStep<W> * int(sizeof(W))};
}

// Prefetches the weights that one tile of rows reads next: those that are kBytes after the ones at p.
template <int kBytes>
struct OwnFetch {
  template <int kVec>
  QUIRE_INLINE void Prefetch(const void* p) const {
    __builtin_prefetch(static_cast<const char*>(p) + kBytes);
  }
  QUIRE_INLINE void NextRow() {}
};

// Prefetches a part of the next panel, for one of several tiles of rows. At least two tiles share a panel, so one line
// for each row of the panel is enough. Lines go to the second-level cache.
struct NextPanelFetch {
  const char* place;
  int64_t step;

  template <int kVec>
  QUIRE_INLINE void Prefetch(const void* /*p*/) const {
    if constexpr (kVec == 0) __builtin_prefetch(place, /*rw=*/0, /*locality=*/2);
  }
  QUIRE_INLINE void NextRow() { place += step; }
};

// Calls multiply(prefetcher) for a tile that begins at row `first_row` and vector `first_vec` of a panel. Meanwhile it
// fetches its part of the next panel, rounded up to whole bytes for each row, or else weights kBytes before it reads
// them.
template <int kRows, int kVecs, int kBytes, typename F>
QUIRE_INLINE void MultiplyAndFetch(const PanelFetch& fetch, int first_vec, PanelRows rows, int first_row,
                                   F&& multiply) {
  if constexpr (kRows >= kLeastRowsOfSeveral && kVecs <= kPanelVecs) {
    if (fetch.panel != nullptr) {
      constexpr int kTiles = kPanelVecs / kVecs;  // Tiles of columns in a panel.
      const int num_parts = fetch.num_parts * kTiles, part = fetch.part * kTiles + first_vec / kVecs;
      const int64_t step = (rows.bytes + num_parts - 1) / num_parts;
      const auto* const begin = static_cast<const char*>(fetch.panel) + (int64_t{part} * rows.num + first_row) * step;
      return multiply(NextPanelFetch{begin, step});
    }
  }
  multiply(OwnFetch<kBytes>());
}

template <int kRows, int kVecs, typename W>
requires kIsFloat<W> QUIRE_INLINE void MultiplyTile(const LinearTask& task, const float* x, const W* panel, int first,
                                                    Columns columns, Tile<kRows, kVecs>* tile) {
  SetZero(tile);
  const auto multiply = [&](auto fetch) __attribute__((always_inline)) {
    Vec w[kVecs];
    for (int k = columns.begin; k < columns.end; ++k) {
      Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
        const W* p = WeightsAt<1>(task, panel, k, first + v);
        fetch.template Prefetch<v>(p);
        w[v] = Load(p);
      });
      fetch.NextRow();
      Accumulate(tile, x + k, task.x.stride, w);
    }
  };
  MultiplyAndFetch<kRows, kVecs, kPrefetchBytes>(task.w.fetch, first, RowsOf<W>(task.cols), columns.begin, multiply);
}

// Adds the products of the columns that `columns` names. `at` returns the place of the pair of columns k, which is
// even, of vector v of the tile.
template <int kRows, int kVecs, typename At, typename Fetch>
QUIRE_INLINE void AccumulatePairs(const float* x, int64_t x_stride, Columns columns, const At& at, Fetch fetch,
                                  Tile<kRows, kVecs>* tile) {
  Vec w[kVecs];
  const auto load_even = [&](int k) __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const BFloat16* p = at.template operator()<v>(k);
      fetch.template Prefetch<v>(p);
      w[v] = LoadEven(p);
    });
    fetch.NextRow();
  };
  int k = columns.begin;
  for (; k + 2 <= columns.end; k += 2) {
    load_even(k);
    Accumulate(tile, x + k, x_stride, w);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const BFloat16* p = at.template operator()<v>(k);
      // With few registers the weights are read again. If the compiler kept them, it would put sums into memory.
      if (kRegisters < 32 && kRows > 4) asm("" : "+r"(p));
      w[v] = LoadOdd(p);
    });
    Accumulate(tile, x + k + 1, x_stride, w);
  }
  if (k == columns.end) return;
  load_even(k);
  Accumulate(tile, x + k, x_stride, w);
}

template <int kRows, int kVecs, typename X>
QUIRE_INLINE void MultiplyTile(const LinearTask& task, const X* x, const BFloat16* panel, int first, Columns columns,
                               Tile<kRows, kVecs>* tile) {
  SetZero(tile);
  const auto at = [&]<int v>(int k) __attribute__((always_inline)) {
    return WeightsAt<2>(task, panel, k / 2, first + v);
  };
  MultiplyAndFetch<kRows, kVecs, kPairPrefetchBytes>(
      task.w.fetch, first, RowsOf<BFloat16>(task.cols),
      columns.begin / 2, [&](auto fetch) __attribute__((always_inline)) {
        AccumulatePairs(x, task.x.stride, columns, at, fetch, tile);
      });
}

// Calls f for each vector of a tile.
template <int kRows, int kVecs, typename F>
QUIRE_INLINE void ForSums(F&& f) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { f.template operator()<r, v>(); });
  });
}

// Sums all slices, and adds them as AddEarlier does.
template <int kRows, int kVecs, typename X, typename W>
QUIRE_INLINE void MultiplySlices(const LinearTask& task, const X* x, const W* panel, int first,
                                 Tile<kRows, kVecs>* tile) {
  alignas(64) float earlier[kMaxEarlierSums][kRows][kVecs][kLanes];
  const int slice_columns = task.cols / task.num_slices;
  for (int slice = 0;; ++slice) {
    MultiplyTile(task, x, panel, first, {slice * slice_columns, (slice + 1) * slice_columns}, tile);
    const int num_earlier = NumEarlierSums(slice);
    for (int i = 0; i < num_earlier; ++i) {
      ForSums<kRows, kVecs>([&]<int r, int v>() __attribute__((always_inline)) {
        tile->sum[r][v] = Add(Load(earlier[i][r][v]), tile->sum[r][v]);
      });
    }
    if (slice + 1 == task.num_slices) return;
    ForSums<kRows, kVecs>([&]<int r, int v>()
                              __attribute__((always_inline)) { Store(earlier[num_earlier][r][v], tile->sum[r][v]); });
  }
}

// Multiplies rows [row, row + kRows) by kPanels panels from `index` on, in tiles as wide as registers allow.
template <int kRows, int kPanels, typename X, typename W>
void RunPanels(const LinearTask& task, int row, int index) {
  constexpr int kVecs = kPanels * kPanelVecs < TileVecs(kRows) ? kPanels * kPanelVecs : TileVecs(kRows);
  const X* x = static_cast<const X*>(task.x.data) + row * task.x.stride;
  const W* panel = static_cast<const W*>(task.w.panels) + index * task.w.panel_elements;
  alignas(64) float sums[kPanels][kRows][kPanelColumns];
  Unroll<kPanels * kPanelVecs / kVecs>([&]<int i>() __attribute__((always_inline)) {
    Tile<kRows, kVecs> tile;
    MultiplySlices(task, x, panel, i * kVecs, &tile);
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
        constexpr int kVec = i * kVecs + v;
        Store(&sums[kVec / kPanelVecs][r][kVec % kPanelVecs * kLanes], tile.sum[r][v]);
      });
    });
  });
  for (int i = 0; i < kPanels; ++i) StoreRows(task, row, row + kRows, index + i, &sums[i][0][0]);
}

// Multiplies rows [row, row + kRows) by the panels [index, end).
template <int kRows, typename X, typename W>
void RunRows(const LinearTask& task, int row, int index, int end) {
  constexpr int kPanels = TileVecs(kRows) > kPanelVecs ? TileVecs(kRows) / kPanelVecs : 1;
  for (; index + kPanels <= end; index += kPanels) RunPanels<kRows, kPanels, X, W>(task, row, index);
  if constexpr (kPanels > 1) {
    for (; index < end; ++index) RunPanels<kRows, 1, X, W>(task, row, index);
  }
}

// REQUIRES: kLeast <= rows <= kRows.
template <int kRows, typename X, typename W, int kLeast = 1>
void DispatchRows(const LinearTask& task, int row, int rows, int index, int end) {
  if (rows == kRows) return RunRows<kRows, X, W>(task, row, index, end);
  if constexpr (kRows > kLeast) DispatchRows<kRows - 1, X, W, kLeast>(task, row, rows, index, end);
}

constexpr int NumRowTiles(int num_rows) {
  return (num_rows + kMaxTileRows - 1) / kMaxTileRows;
}

// Multiplies the rows from `row` on by the panels [index, end), in tiles of nearly equal height: 13 rows are 7 and 6,
// not 12 and 1. No tile has less than kLeast rows.
template <typename X, typename W, int kLeast = 1>
void MultiplyRowTiles(LinearTask task, int row, int index, int end) {
  for (int tiles = NumRowTiles(task.num_rows - row); tiles > 0; --tiles) {
    const int rows = (task.num_rows - row + tiles - 1) / tiles;
    DispatchRows<kMaxTileRows, X, W, kLeast>(task, row, rows, index, end);
    row += rows;
    ++task.w.fetch.part;
  }
}

// With one tile of rows the panels are read once. With more tiles, all rows are multiplied by a panel while it is in
// the cache.
template <typename X, typename W>
void Linear(const LinearTask& whole) {
  LinearTask task = whole;
  task.w.fetch = {.panel = nullptr, .part = 0, .num_parts = NumRowTiles(whole.num_rows)};
  if (task.w.fetch.num_parts == 1) return MultiplyRowTiles<X, W>(task, /*row=*/0, 0, task.num_panels);
  for (int index = 0; index < task.num_panels; ++index) {
    const auto* const next = static_cast<const W*>(task.w.panels) + (index + 1) * task.w.panel_elements;
    task.w.fetch.panel = index + 1 < task.num_panels ? next : task.w.next;
    MultiplyRowTiles<X, W, kLeastRowsOfSeveral>(task, /*row=*/0, index, index + 1);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_KERNEL_H_
