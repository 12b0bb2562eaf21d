#ifndef QUIRE_KERNELS_CPU_LINEAR_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_KERNEL_H_

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_epilogue.h"
#include "kernels/cpu/simd.h"

// Multiplication by packed weights W of rows of X. A tile of kRows x kVecs vectors of accumulators stays in registers
// over all of k.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// How far ahead of the reader weights are fetched: they stream from memory exactly once.
constexpr int kPrefetchBytes = 4096;
constexpr int kPanelVecs = kPanelColumns / kLanes;

// The most rows of a tile, and how many vectors of columns it has for a given number of rows: as many as there are
// registers for, beside one or two for weights and one for x. With few rows several panels give the multiplier enough
// independent sums; with many rows half a panel must do where registers are few.
constexpr int kMaxTileRows = kRegisters >= 32 ? 12 : kRegisters >= 8 ? 6 : 3;
constexpr int TileVecs(int rows) {
  if (kRegisters >= 32) return rows <= 2 ? 8 : rows <= 4 ? 6 : rows <= 6 ? 4 : 2;
  if (kRegisters >= 8) return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  return rows == 1 ? 2 : 1;
}

template <typename W>
constexpr int kStep = 1;  // Consecutive k in one row of a panel.
template <>
constexpr int kStep<BFloat16> = 2;

template <int kRows, int kVecs>
struct Tile {
  Vec sum[kRows][kVecs];
};

template <int kRows, int kVecs>
QUIRE_INLINE void Accumulate(Tile<kRows, kVecs>* tile, const float* x, int64_t x_stride, const Vec (&w)[kVecs]) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const Vec value = Set(x[r * x_stride]);
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { tile->sum[r][v] = Fma(value, w[v], tile->sum[r][v]); });
  });
}

// Where vector v of a tile is in panel row `row`. A tile starts at vector `first` of its first panel: not 0 only for
// half a panel.
template <int kStepSize, typename W>
QUIRE_INLINE const W* WeightsAt(const LinearTask& task, const W* panel, int64_t row, int vec) {
  return panel + (vec / kPanelVecs) * task.panel_elements + row * (kPanelColumns * kStepSize) +
         (vec % kPanelVecs) * (kLanes * kStepSize);
}

template <int kRows, int kVecs, typename W>
QUIRE_INLINE void MultiplyTile(const LinearTask& task, const float* x, const W* panel, int first,
                               Tile<kRows, kVecs>* tile) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { tile->sum[r][v] = Zero(); });
  });
  Vec w[kVecs];
  for (int k = 0; k < task.cols; ++k) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const W* p = WeightsAt<1>(task, panel, k, first + v);
      __builtin_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes);
      w[v] = Load(p);
    });
    Accumulate(tile, x + k, task.x_stride, w);
  }
}

template <int kRows, int kVecs>
QUIRE_INLINE void MultiplyTile(const LinearTask& task, const float* x, const BFloat16* panel, int first,
                               Tile<kRows, kVecs>* tile) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) { tile->sum[r][v] = Zero(); });
  });
  Vec even[kVecs], odd[kVecs];
  const auto load = [&](int64_t pair) __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const BFloat16* p = WeightsAt<2>(task, panel, pair, first + v);
      __builtin_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes);
      LoadPairs(p, &even[v], &odd[v]);
    });
  };
  const int pairs = task.cols / 2;
  for (int k = 0; k < pairs; ++k) {
    load(k);
    Accumulate(tile, x + 2 * k, task.x_stride, even);
    Accumulate(tile, x + 2 * k + 1, task.x_stride, odd);
  }
  if (task.cols % 2 != 0) {
    load(pairs);
    Accumulate(tile, x + 2 * pairs, task.x_stride, even);
  }
}

// Rows [row, row + kRows) by vectors [vec, vec + kVecs) of the task's columns.
template <int kRows, int kVecs, typename X, typename W>
void RunTile(const LinearTask& task, int row, int vec) {
  const W* panel = static_cast<const W*>(task.panels) + (vec / kPanelVecs) * task.panel_elements;
  Tile<kRows, kVecs> tile;
  MultiplyTile(task, static_cast<const X*>(task.x) + row * task.x_stride, panel, vec % kPanelVecs, &tile);
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      StoreColumns(task, row + r, int64_t{vec + v} * kLanes, tile.sum[r][v]);
    });
  });
}

template <int kRows, typename X, typename W>
void RunRows(const LinearTask& task, int row) {
  const int num_vecs = (task.num_columns + kPanelColumns - 1) / kPanelColumns * kPanelVecs;
  constexpr int kVecs = TileVecs(kRows);
  int vec = 0;
  for (; vec + kVecs <= num_vecs; vec += kVecs) RunTile<kRows, kVecs, X, W>(task, row, vec);
  if constexpr (kVecs > kPanelVecs) {
    for (; vec < num_vecs; vec += kPanelVecs) RunTile<kRows, kPanelVecs, X, W>(task, row, vec);
  }
}

template <int kRows, typename X, typename W>
void DispatchRows(const LinearTask& task, int row, int rows) {
  if (rows == kRows) return RunRows<kRows, X, W>(task, row);
  if constexpr (kRows > 1) DispatchRows<kRows - 1, X, W>(task, row, rows);
}

// All rows in tiles of nearly equal height: 13 rows are 7 and 6, not 12 and 1.
template <typename X, typename W>
void RunAllRows(const LinearTask& task, int num_tiles) {
  for (int i = 0, row = 0; i < num_tiles; ++i) {
    const int rows = (task.num_rows - row + num_tiles - i - 1) / (num_tiles - i);
    DispatchRows<kMaxTileRows, X, W>(task, row, rows);
    row += rows;
  }
}

// Panel `index` of the task alone.
template <typename W>
LinearTask OnePanel(const LinearTask& task, int index) {
  const int64_t column = int64_t{index} * kPanelColumns;
  LinearTask part = task;
  part.panels = static_cast<const W*>(task.panels) + index * task.panel_elements;
  if (task.bias != nullptr) part.bias = task.bias + column;
  if (task.residual != nullptr) part.residual = task.residual + column;
  part.y = task.y + column;
  part.num_columns = Min(kPanelColumns, int(task.num_columns - column));
  return part;
}

// With one tile of rows the panels stream through once. With more, all rows pass over a panel while it is in the cache.
template <typename X, typename W>
void Linear(const LinearTask& task) {
  const int num_tiles = (task.num_rows + kMaxTileRows - 1) / kMaxTileRows;
  if (num_tiles == 1) return RunAllRows<X, W>(task, 1);
  for (int panel = 0; panel * kPanelColumns < task.num_columns; ++panel) {
    RunAllRows<X, W>(OnePanel<W>(task, panel), num_tiles);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_KERNEL_H_
