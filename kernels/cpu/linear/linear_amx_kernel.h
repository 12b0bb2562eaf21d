// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_KERNEL_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_amx_fetch.h"
#include "kernels/cpu/linear/linear_amx_many_rows.h"
#include "kernels/cpu/linear/linear_amx_tiles.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/linear/linear_task.h"

// Multiplication of bfloat16 by AMX tiles.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// How often to fetch: `times` lines of each page in every `interval`-th product of tiles.
struct FetchRate {
  int times;
  int interval;
};

// A product uses 32 lines of weights. The rate is such that the next panel is fetched when all rows have used this one.
constexpr int kFetchesPerProduct = kProductElements * int(sizeof(BFloat16)) / kLineBytes / PageFetcher::kPages;
QUIRE_INLINE FetchRate RateFor(int num_passes) {
  return {Max(1, (kFetchesPerProduct + num_passes - 1) / num_passes), Max(1, num_passes / kFetchesPerProduct)};
}

QUIRE_INLINE void Fetch(PageFetcher* fetcher, FetchRate rate, int product) {
  if (product % rate.interval != 0) return;
  for (int i = 0; i < rate.times; ++i) fetcher->FetchLines();
}

QUIRE_INLINE int StepsOfSlice(const LinearTask& task) {
  return (task.cols + kProductSteps - 1) / kProductSteps / task.num_slices;
}

// sums[slice][16, 32] = rows of x by one panel.
inline void MultiplyRows(const LinearTask& task, const BFloat16* x, const BFloat16* panel, FetchRate rate,
                         PageFetcher* fetcher, float* sums) {
  const int64_t x_stride = task.x.stride * int64_t(sizeof(BFloat16));
  const int slice_steps = StepsOfSlice(task);
  for (int slice = 0, i = 0; slice < task.num_slices; ++slice, sums += kTileSums) {
    ZeroTile<kSum00>();
    ZeroTile<kSum01>();
    for (const int end = i + slice_steps; i < end; ++i, x += kProductSteps, panel += kProductElements) {
      Fetch(fetcher, rate, i);
      LoadTile<kW0>(panel, kPairStride);
      LoadTile<kX0>(x, x_stride);
      LoadTile<kW1>(panel + kPanelColumns, kPairStride);
      MultiplyTiles<kSum00, kX0, kW0>();
      MultiplyTiles<kSum01, kX0, kW1>();
    }
    StoreTile<kSum00>(sums, kSumsStride);
    StoreTile<kSum01>(sums + kLanes, kSumsStride);
  }
}

// Up to 32 rows that are multiplied by panel `index`: the rows of y from `row` on, and the two tiles of x.
struct PanelPass {
  const BFloat16* x0;
  const BFloat16* x1;
  const BFloat16* panel;
  int row;
  int index;
};

// Like MultiplyRows for two tiles of 16 rows each; sums is [slice][2][16, 32].
inline void MultiplyTwice(const LinearTask& task, const PanelPass& pass, FetchRate rate, PageFetcher* fetcher,
                          float* sums) {
  const int64_t x_stride = task.x.stride * int64_t(sizeof(BFloat16));
  const BFloat16* panel = pass.panel;
  const int slice_steps = StepsOfSlice(task);
  for (int slice = 0, i = 0; slice < task.num_slices; ++slice, sums += kPairSums) {
    ZeroSums<2>();
    for (const int end = i + slice_steps; i < end; ++i, panel += kProductElements) {
      Fetch(fetcher, rate, i);
      FetchOutput(task, pass.index, pass.row + i, Min(pass.row + Min(i + 1, 2 * kTileRows), task.num_rows));
      LoadTile<kW0>(panel, kPairStride);
      LoadTile<kX0>(pass.x0 + i * kProductSteps, x_stride);
      LoadTile<kW1>(panel + kPanelColumns, kPairStride);
      LoadTile<kX1>(pass.x1 + i * kProductSteps, x_stride);
      MultiplyTiles<kSum00, kX0, kW0>();
      MultiplyTiles<kSum01, kX0, kW1>();
      MultiplyTiles<kSum10, kX1, kW0>();
      MultiplyTiles<kSum11, kX1, kW1>();
    }
    StoreSums<2>(sums);
  }
}

// Multiplies up to 16 rows. The panels are read once.
inline void MultiplyFewRows(const LinearTask& task, PageFetcher* fetcher) {
  const BFloat16* panel = static_cast<const BFloat16*>(task.w.panels);
  const LinearTiles tiles(task.num_rows);
  alignas(64) float sums[kMaxSlices * kTileSums];
  for (int index = 0; index < task.num_panels; ++index, panel += task.w.panel_elements) {
    MultiplyRows(task, static_cast<const BFloat16*>(task.x.data), panel, RateFor(1), fetcher, sums);
    AddSlices(task.num_slices, task.num_rows * kPanelColumns, kTileSums, sums);
    StoreRows(task, 0, task.num_rows, index, sums);
  }
}

// Multiplies more than 16 plain rows. All rows are multiplied by a panel, 32 at a time, while the next panel is
// fetched. No tile extends beyond the last row. Instead the last tile may overlap the one before it. The rows in the
// overlap are computed twice and stored once.
inline void MultiplySomeRows(const LinearTask& task, PageFetcher* fetcher) {
  const BFloat16* panel = static_cast<const BFloat16*>(task.w.panels);
  const BFloat16* const x = static_cast<const BFloat16*>(task.x.data);
  const int last_tile = task.num_rows - kTileRows;
  const FetchRate even_rate = RateFor((task.num_rows + 2 * kTileRows - 1) / (2 * kTileRows));
  const LinearTiles tiles(kTileRows);
  alignas(64) float sums[kMaxSlices * kPairSums];
  for (int index = 0; index < task.num_panels; ++index, panel += task.w.panel_elements) {
    for (int row = 0; row < task.num_rows; row += 2 * kTileRows) {
      const int middle = Min(row + kTileRows, task.num_rows), end = Min(middle + kTileRows, task.num_rows);
      const int first = Min(row, last_tile), second = Min(middle, last_tile);
      // Nothing has fetched the first panel in advance, so it is fetched while it is used.
      const FetchRate rate = index == 0 && row == 0 ? RateFor(1) : even_rate;
      const PanelPass pass = {x + first * task.x.stride, x + second * task.x.stride, panel, row, index};
      MultiplyTwice(task, pass, rate, fetcher, sums);
      AddSlices(task.num_slices, kPairSums, kPairSums, sums);
      StoreRows(task, row, middle, index, sums + (row - first) * kPanelColumns);
      StoreRows(task, middle, end, index, sums + kTileSums + (middle - second) * kPanelColumns);
    }
  }
}

inline void LinearBFloat16(const LinearTask& task) {
  if (task.x.is_tiled) return MultiplyTiledRows(task);
  const int64_t num_bytes = task.num_panels * task.w.panel_elements * int64_t(sizeof(BFloat16));
  PageFetcher fetcher(task.w.panels, num_bytes / kLineBytes);
  if (task.num_rows <= kTileRows) return MultiplyFewRows(task, &fetcher);
  MultiplySomeRows(task, &fetcher);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_KERNEL_H_
