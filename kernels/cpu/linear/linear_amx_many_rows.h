// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_MANY_ROWS_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_MANY_ROWS_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_amx_deferred_rows.h"
#include "kernels/cpu/linear/linear_amx_fetch.h"
#include "kernels/cpu/linear/linear_amx_tiles.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/linear/linear_task.h"

// Multiplication of many rows of bfloat16, which are stored in tiles. K is divided into blocks
// (StepBlocks). A block of a panel takes at most 32 KiB. It stays in the first-level cache while all rows are
// multiplied by it. The same block of the rows stays in the second-level cache while it is multiplied by all panels of
// the task. Between two blocks of a slice the sums are kept in the task's scratch as they are, so the division does not
// change them. The sums of finished slices are kept there, too, [earlier sum][panel][pair of tiles][32, 32]
// (NumEarlierSums). While a slice is summed, its sums are already in the place where its result will wait.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kTileElements = kTileRows * kTileStep;
constexpr int kPairSums = kTilePairRows * kPanelColumns;  // Sums of a pair of tiles by one panel.

constexpr int kLinesPerStep = kProductElements * int(sizeof(BFloat16)) / kLineBytes;

// The blocks of weights of a task in the order of their use: a block of all panels, then the next block of all panels.
// After them comes the first block of the task that probably follows on this thread, or the last block again.
class WeightBlocks {
 public:
  explicit WeightBlocks(const LinearTask* task) : task_(*task), blocks_(StepBlocks(task->cols, task->num_slices)) {}

  int size() const { return blocks_.size * task_.num_panels; }
  // REQUIRES: i < size().
  int Panel(int i) const { return i % task_.num_panels; }
  int FirstStep(int i) const { return blocks_.First(i / task_.num_panels); }
  int NumSteps(int i) const { return blocks_.Count(i / task_.num_panels); }
  int Slice(int i) const { return blocks_.SliceOf(i / task_.num_panels); }
  bool BeginsSlice(int i) const { return blocks_.BeginsSlice(i / task_.num_panels); }
  bool EndsSlice(int i) const { return blocks_.EndsSlice(i / task_.num_panels); }
  bool IsLast(int i) const { return i / task_.num_panels == blocks_.size - 1; }
  const BFloat16* Weights(int i) const {
    return static_cast<const BFloat16*>(task_.w.panels) + Panel(i) * task_.w.panel_elements +
           FirstStep(i) * kProductElements;
  }
  WeightBlock operator[](int i) const {
    if (i < size()) return {reinterpret_cast<const char*>(Weights(i)), NumSteps(i) * kLinesPerStep};
    if (task_.w.next == nullptr) return (*this)[size() - 1];
    return {static_cast<const char*>(task_.w.next), NumSteps(0) * kLinesPerStep};
  }

 private:
  const LinearTask& task_;
  const KBlocks blocks_;
};

// Up to 32 rows that are multiplied by a block of panel `index`.
struct Pass {
  const BFloat16* x;
  const BFloat16* w;
  float* sums;  // Sums of the earlier blocks of the slice, then of the slice.
  int num_steps;
  bool is_first;    // Whether there are no earlier blocks in the slice.
  bool is_last;     // Whether there are no later blocks.
  int num_earlier;  // If this is the last block of the slice: how many earlier sums are added to its own. Otherwise 0.
  const float* earlier;  // The first of them, with `earlier_stride` from one to the next.
  int64_t earlier_stride;
  int row;  // The rows of y.
  int end;
  int index;
};

// The sums of the last pass that ended a slice and has earlier sums, or that was the last one of its rows.
class PendingRows {
 public:
  explicit PendingRows(const LinearTask* task) : task_(*task) {}

  // Stores the next rows, at most `count`.
  QUIRE_INLINE void Store(int count) {
    rows_.Take(
        count, [&](int row, int end) __attribute__((always_inline)) { StoreUntil(row, end); });
  }
  void StoreAll() { Store(rows_.size()); }

  // Returns the place for the sums of this pass, which are the next to be stored. REQUIRES: all earlier rows are
  // stored.
  float* Replace(const Pass& pass) {
    pass_ = pass;
    rows_.Replace(pass.index, pass.row, pass.end);
    if (task_.y.is_tiled && pass.is_last && tiled_index_ != pass.index) {
      tiled_index_ = pass.index;
      columns_ = TiledColumns(task_, pass.index);
    }
    current_ = 1 - current_;
    return sums_[current_];
  }

 private:
  QUIRE_INLINE void StoreUntil(int row, int end) {
    const int at = (row - pass_.row) * kPanelColumns;
    if (pass_.num_earlier > 0) AddEarlierTo(at, (end - row) * kPanelColumns);
    const float* const sums = sums_[current_] + at;
    if (!pass_.is_last) {
      // AddEarlierTo has stored the sums where they are kept.
    } else if (task_.y.is_tiled) {
      StoreTiledRows(task_, row, end, pass_.index, columns_, sums);
    } else {
      StoreRows(task_, row, end, pass_.index, sums);
    }
  }
  // Adds the earlier sums to `count` sums from `at` on. Not inline, because most matrices have one slice.
  __attribute__((noinline)) void AddEarlierTo(int at, int count) {
    float* const sums = sums_[current_] + at;
    float* const to = pass_.is_last ? sums : pass_.sums + at;
    AddEarlierRows(count, sums, pass_.num_earlier, pass_.earlier + at, pass_.earlier_stride, to);
  }

  const LinearTask& task_;
  DeferredRows rows_;
  Pass pass_ = {};  // The pass of these rows.
  int current_ = 0;
  TiledColumns columns_;  // If y is tiled: of panel tiled_index_.
  int tiled_index_ = -1;
  alignas(64) float sums_[2][kPairSums];
};

// Prefetches rows of y. Otherwise stores, and the products behind them, would wait for lines that are not in the cache.
QUIRE_INLINE void FetchOutput(const LinearTask& task, int index, int row, int end) {
  const int bytes = task.y.type == DataType::kFloat32 ? 4 : 2;
  const int row_bytes = (task.w.is_gated ? kGatedColumns : kPanelColumns) * bytes;
  for (; row < end; ++row) {
    const char* y = static_cast<const char*>(task.y.data) + row * task.y.stride * bytes + int64_t{index} * row_bytes;
    __builtin_prefetch(y, 1, 2);
    __builtin_prefetch(y + row_bytes - 1, 1, 2);
  }
}

template <int kTiles>
QUIRE_INLINE void ZeroSums() {
  ZeroTile<kSum00>();
  ZeroTile<kSum01>();
  if constexpr (kTiles == 1) return;
  ZeroTile<kSum10>();
  ZeroTile<kSum11>();
}

template <int kTiles>
QUIRE_INLINE void LoadSums(const float* sums) {
  LoadTile<kSum00>(sums, kSumsStride);
  LoadTile<kSum01>(sums + kLanes, kSumsStride);
  if constexpr (kTiles == 1) return;
  LoadTile<kSum10>(sums + kTileSums, kSumsStride);
  LoadTile<kSum11>(sums + kTileSums + kLanes, kSumsStride);
}

template <int kTiles>
QUIRE_INLINE void StoreSums(float* sums) {
  StoreTile<kSum00>(sums, kSumsStride);
  StoreTile<kSum01>(sums + kLanes, kSumsStride);
  if constexpr (kTiles == 1) return;
  StoreTile<kSum10>(sums + kTileSums, kSumsStride);
  StoreTile<kSum11>(sums + kTileSums + kLanes, kSumsStride);
}

// Called after load or product number kPart of the kParts of a step. Fetches its share of the kLines lines of weights
// of the step. While many fetches wait for memory, loads from the second-level cache wait behind them. So the lines are
// spread evenly.
template <int kPart, int kParts, int kLines>
QUIRE_INLINE void FetchPart(LineFetcher* weights) {
  Unroll<kLines*(kPart + 1) / kParts - kLines * kPart / kParts>([&]<int>() __attribute__((always_inline)) {
    weights->FetchLine();
  });
}

// Adds 32 k to the sums, and prefetches kLines lines of weights.
template <int kTiles, int kLines>
QUIRE_INLINE void MultiplyStep(const BFloat16* x, const BFloat16* w, LineFetcher* weights) {
  constexpr int kLoads = 2 + kTiles, kParts = kLoads + 2 * kTiles;
  LoadTile<kW0>(w, kPairStride);
  FetchPart<0, kParts, kLines>(weights);
  StreamTile<kX0>(x, kTileRowBytes);
  FetchPart<1, kParts, kLines>(weights);
  LoadTile<kW1>(w + kPanelColumns, kPairStride);
  FetchPart<2, kParts, kLines>(weights);
  if constexpr (kTiles == 2) {
    StreamTile<kX1>(x + kTileElements, kTileRowBytes);
    FetchPart<3, kParts, kLines>(weights);
  }
  MultiplyTiles<kSum00, kX0, kW0>();
  FetchPart<kLoads, kParts, kLines>(weights);
  MultiplyTiles<kSum01, kX0, kW1>();
  FetchPart<kLoads + 1, kParts, kLines>(weights);
  if constexpr (kTiles == 1) return;
  MultiplyTiles<kSum10, kX1, kW0>();
  FetchPart<kLoads + 2, kParts, kLines>(weights);
  MultiplyTiles<kSum11, kX1, kW1>();
  FetchPart<kLoads + 3, kParts, kLines>(weights);
}

// Multiplies kTiles tiles of rows.
template <int kTiles, int kLines>
void RunPass(const LinearTask& task, const Pass& pass, LineFetcher* weights, PendingRows* pending) {
  const int rows_per_step = (kTilePairRows + pass.num_steps - 1) / pass.num_steps;
  const BFloat16* x = pass.x;
  const BFloat16* w = pass.w;
  pass.is_first ? ZeroSums<kTiles>() : LoadSums<kTiles>(pass.sums);
  for (int i = 0; i < pass.num_steps; ++i, x += kTilePairElements, w += kProductElements) {
    pending->Store(rows_per_step);
    if (pass.is_last && !task.y.is_tiled) {  // In tiles, rows follow each other.
      const int row = pass.row + i * rows_per_step;
      FetchOutput(task, pass.index, row, Min(row + rows_per_step, pass.end));
    }
    MultiplyStep<kTiles, kLines>(x, w, weights);
  }
  pending->StoreAll();
  const bool is_pending = pass.is_last || pass.num_earlier > 0;
  StoreSums<kTiles>(is_pending ? pending->Replace(pass) : pass.sums);
}

// Multiplies all rows by the block that `pass` describes for the first of them, and prefetches kLines lines of the next
// block in each step.
template <int kLines>
void MultiplyBlock(const LinearTask& task, Pass pass, WeightBlock next, PendingRows* pending) {
  LineFetcher weights(next);
  for (; pass.row < task.num_rows; pass.row += kTilePairRows) {
    pass.end = Min(pass.row + kTilePairRows, task.num_rows);
    if (pass.end - pass.row > kTileRows) {
      RunPass<2, kLines>(task, pass, &weights, pending);
    } else {
      RunPass<1, kLines>(task, pass, &weights, pending);
    }
    pass.x += pass.num_steps * kTilePairElements;
    pass.sums += kPairSums;
    pass.earlier += kPairSums;
  }
}

inline void MultiplyTiledRows(const LinearTask& task) {
  const WeightBlocks blocks(&task);
  const BFloat16* const x = static_cast<const BFloat16*>(task.x.data);
  const int num_pairs = (task.num_rows + kTilePairRows - 1) / kTilePairRows;
  const LinearTiles tiles(kTileRows);
  PendingRows pending(&task);
  // The task before this one has probably fetched the first block. Then this is soon done.
  LineFetcher(blocks[0]).FetchRest();
  // A block is fetched when all rows have been multiplied by the one before it.
  const auto multiply = num_pairs >= 16  ? MultiplyBlock<2>
                        : num_pairs >= 8 ? MultiplyBlock<4>
                        : num_pairs >= 4 ? MultiplyBlock<8>
                        : num_pairs >= 2 ? MultiplyBlock<16>
                                         : MultiplyBlock<32>;
  for (int i = 0; i < blocks.size(); ++i) {
    Pass pass{};
    pass.x = x + int64_t{task.x.num_tile_pairs} * blocks.FirstStep(i) * kTilePairElements +
             int64_t{task.first_row / kTilePairRows} * blocks.NumSteps(i) * kTilePairElements;
    pass.w = blocks.Weights(i);
    const int num_earlier = NumEarlierSums(blocks.Slice(i));
    float* const kept = static_cast<float*>(task.scratch) + int64_t{blocks.Panel(i)} * num_pairs * kPairSums;
    pass.earlier = kept;
    pass.earlier_stride = int64_t{task.num_panels} * num_pairs * kPairSums;
    pass.sums = kept + num_earlier * pass.earlier_stride;
    pass.num_steps = blocks.NumSteps(i);
    pass.is_first = blocks.BeginsSlice(i);
    pass.is_last = blocks.IsLast(i);
    pass.num_earlier = blocks.EndsSlice(i) ? num_earlier : 0;
    pass.index = blocks.Panel(i);
    multiply(task, pass, blocks[i + 1], &pending);
  }
  pending.StoreAll();
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_MANY_ROWS_H_
