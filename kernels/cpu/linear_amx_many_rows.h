// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_AMX_MANY_ROWS_H_
#define QUIRE_KERNELS_CPU_LINEAR_AMX_MANY_ROWS_H_

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_amx_tiles.h"
#include "kernels/cpu/linear_epilogue.h"
#include "kernels/cpu/simd.h"

// Multiplication of many rows of bfloat16, which are stored in tiles. K is divided into blocks
// (BlockSteps). A block of a panel takes at most 32 KiB. It stays in the first-level cache while all rows are
// multiplied by it. The same block of the rows stays in the second-level cache while it is multiplied by all panels of
// the task. Between two blocks the sums are kept in the task's scratch as they are, so the division does not change
// them.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kTileElements = kTileRows * kTileStep;
constexpr int kPairSums = kTilePairRows * kPanelColumns;  // Sums of a pair of tiles by one panel.

// A block of a panel: consecutive cache lines. Empty after the last one.
struct WeightBlock {
  const char* at;
  int num_lines;
};
constexpr int kLineBytes = 64;
constexpr int kLinesPerStep = kProductElements * int(sizeof(BFloat16)) / kLineBytes;

// Prefetches a block of weights into the second-level cache while another block is multiplied. It fetches from 8 parts
// of the block in turn, which are pages of 4 KiB if the block is as large as it can be. The hardware prefetcher works
// within one page, so 8 of its streams run at the same time.
class WeightFetcher {
 public:
  explicit WeightFetcher(WeightBlock block)
      : at_(block.at),
        part_bytes_((block.num_lines + kParts - 1) / kParts * kLineBytes),
        end_(block.at + part_bytes_) {}

  QUIRE_INLINE void Fetch(int num_lines) {
    for (; num_lines > 0 && at_ < end_; --num_lines) {
      __builtin_prefetch(at_ + part_ * part_bytes_, 0, 2);
      if (++part_ < kParts) continue;
      part_ = 0;
      at_ += kLineBytes;
    }
  }

 private:
  static constexpr int kParts = 8;

  const char* at_;  // In the first part.
  const int64_t part_bytes_;
  const char* const end_;  // Of the first part.
  int part_ = 0;
};

// The blocks of weights of a task in the order of their use: a block of all panels, then the next block of all panels.
// The blocks of the task that probably follows on this thread come after them.
class WeightBlocks {
 public:
  explicit WeightBlocks(const LinearTask* task)
      : task_(*task), num_steps_((task->cols + kTileStep - 1) / kTileStep), block_steps_(BlockSteps(task->cols)) {}

  int size() const { return (num_steps_ + block_steps_ - 1) / block_steps_ * task_.num_panels; }
  // REQUIRES: i < size().
  int Panel(int i) const { return i % task_.num_panels; }
  int FirstStep(int i) const { return i / task_.num_panels * block_steps_; }
  int NumSteps(int i) const { return Min(block_steps_, num_steps_ - FirstStep(i)); }
  bool IsLast(int i) const { return FirstStep(i) + block_steps_ >= num_steps_; }
  const BFloat16* Weights(int i) const {
    return static_cast<const BFloat16*>(task_.panels) + Panel(i) * task_.panel_elements +
           FirstStep(i) * kProductElements;
  }
  WeightBlock operator[](int i) const {
    if (i < size()) return {reinterpret_cast<const char*>(Weights(i)), NumSteps(i) * kLinesPerStep};
    if (task_.next_panels == nullptr) return {nullptr, 0};
    return {static_cast<const char*>(task_.next_panels), NumSteps(0) * kLinesPerStep};
  }

 private:
  const LinearTask& task_;
  const int num_steps_;
  const int block_steps_;
};

// The sums of the last pass. They are processed and stored a few rows at a time between the products of the next pass,
// which the tile unit computes at the same time.
class PendingRows {
 public:
  explicit PendingRows(const LinearTask* task) : task_(*task) {}

  // Stores the next rows, at most `count`.
  QUIRE_INLINE void Store(int count) {
    const int until = Min(row_ + count, end_);
    const float* const sums = sums_[current_] + (row_ - begin_) * kPanelColumns;
    if (task_.y_is_tiled) {
      StoreTiledRows(task_, row_, until, index_, columns_, sums);
    } else {
      StoreRows(task_, row_, until, index_, sums);
    }
    row_ = until;
  }
  void StoreAll() { Store(end_ - row_); }

  // Returns the place for the sums of rows [row, end) by panel `index`, which are the next to be stored. REQUIRES: all
  // earlier rows are stored.
  float* Replace(int row, int end, int index) {
    begin_ = row_ = row;
    end_ = end;
    index_ = index;
    if (task_.y_is_tiled) columns_ = TiledColumns(task_, index);
    current_ = 1 - current_;
    return sums_[current_];
  }

 private:
  const LinearTask& task_;
  int begin_ = 0, row_ = 0, end_ = 0;
  int index_ = 0;
  int current_ = 0;
  TiledColumns columns_;  // If y is tiled.
  alignas(64) float sums_[2][kPairSums];
};

// Up to 32 rows that are multiplied by a block of panel `index`.
struct Pass {
  const BFloat16* x;
  const BFloat16* w;
  float* sums;  // Of the earlier blocks.
  int num_steps;
  bool is_first;  // Whether there are no earlier blocks.
  bool is_last;   // Whether there are no later blocks.
  int row;        // The rows of y.
  int end;
  int index;
  int lines_per_step;  // Number of lines of weights to prefetch in each step.
};

// Prefetches rows of y. Otherwise stores, and the products behind them, would wait for lines that are not in the cache.
QUIRE_INLINE void FetchOutput(const LinearTask& task, int index, int row, int end) {
  const int bytes = task.y_type == DataType::kFloat32 ? 4 : 2;
  const int row_bytes = (task.is_gated ? kGatedColumns : kPanelColumns) * bytes;
  for (; row < end; ++row) {
    const char* y = static_cast<const char*>(task.y) + row * task.y_stride * bytes + int64_t{index} * row_bytes;
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

// Adds 32 k to the sums, and prefetches `num_lines` lines of weights. They are spread evenly among the loads and
// products of tiles: while many fetches wait for memory, loads from the second-level cache wait behind them.
template <int kTiles>
QUIRE_INLINE void MultiplyStep(const BFloat16* x, const BFloat16* w, int num_lines, WeightFetcher* weights) {
  constexpr int kParts = 4 * kTiles;
  const int few = num_lines / kParts, parts_with_more = num_lines % kParts;
  const auto fetch = [&](int part) __attribute__((always_inline)) {
    weights->Fetch(few + (part < parts_with_more));
  };
  LoadTile<kW0>(w, kPairStride);
  fetch(0);
  StreamTile<kX0>(x, kTileRowBytes);
  fetch(1);
  MultiplyTiles<kSum00, kX0, kW0>();
  LoadTile<kW1>(w + kPanelColumns, kPairStride);
  fetch(2);
  MultiplyTiles<kSum01, kX0, kW1>();
  fetch(3);
  if constexpr (kTiles == 1) return;
  fetch(4);
  StreamTile<kX1>(x + kTileElements, kTileRowBytes);
  fetch(5);
  MultiplyTiles<kSum10, kX1, kW0>();
  fetch(6);
  MultiplyTiles<kSum11, kX1, kW1>();
  fetch(7);
}

// Multiplies kTiles tiles of rows.
template <int kTiles>
void RunPass(const LinearTask& task, const Pass& pass, WeightFetcher* weights, PendingRows* pending) {
  const int rows_per_step = (kTilePairRows + pass.num_steps - 1) / pass.num_steps;
  const BFloat16* x = pass.x;
  const BFloat16* w = pass.w;
  pass.is_first ? ZeroSums<kTiles>() : LoadSums<kTiles>(pass.sums);
  for (int i = 0; i < pass.num_steps; ++i, x += kTilePairElements, w += kProductElements) {
    pending->Store(rows_per_step);
    if (pass.is_last && !task.y_is_tiled) {  // In tiles, rows follow each other.
      const int row = pass.row + i * rows_per_step;
      FetchOutput(task, pass.index, row, Min(row + rows_per_step, pass.end));
    }
    MultiplyStep<kTiles>(x, w, pass.lines_per_step, weights);
  }
  if (!pass.is_last) return StoreSums<kTiles>(pass.sums);
  pending->StoreAll();
  StoreSums<kTiles>(pending->Replace(pass.row, pass.end, pass.index));
}

// Multiplies all rows by the block that `pass` describes for the first of them.
inline void MultiplyBlock(const LinearTask& task, Pass pass, WeightBlock next, PendingRows* pending) {
  WeightFetcher weights(next);
  for (; pass.row < task.num_rows; pass.row += kTilePairRows) {
    pass.end = Min(pass.row + kTilePairRows, task.num_rows);
    if (pass.end - pass.row > kTileRows) {
      RunPass<2>(task, pass, &weights, pending);
    } else {
      RunPass<1>(task, pass, &weights, pending);
    }
    pass.x += pass.num_steps * kTilePairElements;
    pass.sums += kPairSums;
  }
}

inline void MultiplyTiledRows(const LinearTask& task) {
  const WeightBlocks blocks(&task);
  const BFloat16* const x = static_cast<const BFloat16*>(task.x);
  const int num_pairs = (task.num_rows + kTilePairRows - 1) / kTilePairRows;
  const LinearTiles tiles(kTileRows);
  PendingRows pending(&task);
  // The task before this one has probably fetched the first block. Then this is soon done.
  WeightFetcher(blocks[0]).Fetch(blocks[0].num_lines);
  for (int i = 0; i < blocks.size(); ++i) {
    Pass pass{};
    pass.x = x + int64_t{task.num_tile_pairs} * blocks.FirstStep(i) * kTilePairElements +
             int64_t{task.first_row / kTilePairRows} * blocks.NumSteps(i) * kTilePairElements;
    pass.w = blocks.Weights(i);
    pass.sums = static_cast<float*>(task.scratch) + int64_t{blocks.Panel(i)} * num_pairs * kPairSums;
    pass.num_steps = blocks.NumSteps(i);
    pass.is_first = blocks.FirstStep(i) == 0;
    pass.is_last = blocks.IsLast(i);
    pass.index = blocks.Panel(i);
    pass.lines_per_step = (kLinesPerStep + num_pairs - 1) / num_pairs;
    MultiplyBlock(task, pass, blocks[i + 1], &pending);
  }
  pending.StoreAll();
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_AMX_MANY_ROWS_H_
