// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT8_MANY_ROWS_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT8_MANY_ROWS_H_

#include "kernels/cpu/isa/amx_tile.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_amx_deferred_rows.h"
#include "kernels/cpu/linear/linear_amx_fetch.h"
#include "kernels/cpu/linear/linear_amx_many_rows.h"
#include "kernels/cpu/linear/linear_amx_quantized_tiles.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_task.h"

// Multiplication of many rounded rows by int8 weights. A panel is divided into blocks of k. A block stays in the
// first-level cache while all rows are multiplied by it, and the rows come from the second-level cache. Between two
// blocks of a panel the sums are kept as they are. They are whole numbers, so the bits are the same as in
// linear_int8_kernel.h.
//
// Tiles and vectors work at the same time. So each step of a pass stores some rows of the last pass whose sums were
// complete.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

class BlockedInt8Product {
 public:
  // More rows would not fit into kept_.
  static constexpr int kMaxRows = 1024;

  // REQUIRES: more than 16 rows, and at most kMaxRows.
  explicit BlockedInt8Product(const LinearTask& task)
      : task_(task),
        format_(task),
        num_blocks_((format_.num_steps() + kMaxInt8BlockSteps - 1) / kMaxInt8BlockSteps),
        block_steps_((format_.num_steps() + num_blocks_ - 1) / num_blocks_),
        panels_(static_cast<const char*>(task.w.panels)),
        fetcher_(task, (task.num_rows + kPassRows - 1) / kPassRows * format_.num_steps()) {}

  void Run() {
    TileShapes shapes;
    for (const int tile : {kSum00, kSum01, kSum10, kSum11, kX0, kX1, kW0, kW1}) {
      shapes.Set(tile, kTileRows, kTileRowBytes);
    }
    ConfigureTiles(shapes);
    for (int index = 0; index < task_.num_panels; ++index) {
      for (int begin = 0; begin < format_.num_steps(); begin += block_steps_) {
        const int end = Min(begin + block_steps_, format_.num_steps());
        for (int row = 0; row < task_.num_rows; row += kPassRows) {
          if (task_.num_rows - row <= kTileRows) {
            Pass<1>(index, begin, end, row);
          } else {
            Pass<2>(index, begin, end, row);
          }
        }
      }
    }
    StoreRowsOfPass(kPassRows);
    ReleaseTiles();
  }

 private:
  static constexpr int kMaxInt8BlockSteps = 16;  // 32 KiB.

  // Multiplies up to 32 rows from `row` on by the steps [begin, end) of a panel, in kTiles tiles of rows. No tile
  // extends beyond the last row. Instead the last tile may begin earlier.
  template <int kTiles>
  void Pass(int index, int begin, int end, int row) {
    const int row_end = Min(row + kPassRows, task_.num_rows), last_tile = task_.num_rows - kTileRows;
    const int first = Min(row, last_tile), second = Min(first + kTileRows, last_tile);
    const int64_t start = int64_t{begin} * format_.columns();
    const char* x0 = format_.x() + first * task_.x.stride + start;
    const char* x1 = format_.x() + second * task_.x.stride + start;
    const char* w = format_.WeightsAt(panels_ + index * task_.w.panel_elements, begin);
    const bool is_last = end == format_.num_steps();
    const int rows_per_step = (kPassRows + end - begin - 1) / (end - begin);
    auto* const kept = reinterpret_cast<float*>(kept_[row / kPassRows]);
    begin == 0 ? ZeroSums<kTiles>() : LoadSums<kTiles>(kept);
    for (int step = begin; step < end; ++step, w += kStepBytes, x0 += kTileRowBytes, x1 += kTileRowBytes) {
      LoadTile<kW0>(w, kWeightStride);
      StreamTile<kX0>(x0, task_.x.stride);
      MultiplySignedByUnsigned<kSum00, kX0, kW0>();
      LoadTile<kW1>(w + kTileRowBytes, kWeightStride);
      MultiplySignedByUnsigned<kSum01, kX0, kW1>();
      if constexpr (kTiles == 2) {
        StreamTile<kX1>(x1, task_.x.stride);
        MultiplySignedByUnsigned<kSum10, kX1, kW0>();
        MultiplySignedByUnsigned<kSum11, kX1, kW1>();
      }
      fetcher_.Fetch();  // The next panel is fetched when all rows have passed over this one.
      if (is_last) {
        const int at = row + (step - begin) * rows_per_step;
        FetchOutput(task_, index, at, Min(at + rows_per_step, row_end));
      }
      StoreRowsOfPass(rows_per_step);
    }
    if (!is_last) return StoreSums<kTiles>(kept);
    StoreRowsOfPass(kPassRows);
    parity_ = 1 - parity_;
    int32_t* const sums = sums_[parity_];
    StoreTile<kSum00>(sums, kSumsStride);
    StoreTile<kSum01>(sums + kLanes, kSumsStride);
    if constexpr (kTiles == 2) {
      int32_t* const below = sums + (second - first) * kPanelColumns;
      StoreTile<kSum10>(below, kSumsStride);
      StoreTile<kSum11>(below + kLanes, kSumsStride);
    }
    first_to_store_ = first;
    to_store_.Replace(index, row, row_end);
  }

  // Scales and stores up to `rows` more rows of the last pass whose sums were complete.
  QUIRE_INLINE void StoreRowsOfPass(int rows) {
    to_store_.Take(
        rows, [&](int begin, int end) __attribute__((always_inline)) {
          const char* const panel = panels_ + to_store_.index() * task_.w.panel_elements;
          const Vec left_scales = format_.Scales(panel, 0, 0), right_scales = format_.Scales(panel, 0, 1);
          const int32_t* sums = sums_[parity_] + (begin - first_to_store_) * kPanelColumns;
          float* y = products_;
          for (int row = begin; row < end; ++row, sums += kPanelColumns, y += kPanelColumns) {
            Store(y, format_.Combine(Zero(), sums, row, 0, left_scales));
            Store(y + kLanes, format_.Combine(Zero(), sums + kLanes, row, 0, right_scales));
          }
          StoreRows(task_, begin, end, to_store_.index(), products_);
        });
  }

  alignas(64) int32_t sums_[2][kPairSums];
  alignas(64) float products_[kPairSums];
  alignas(64) int32_t kept_[kMaxRows / kPassRows][kPairSums];
  const LinearTask& task_;
  const Int8Tiles format_;
  const int num_blocks_;
  const int block_steps_;
  const char* const panels_;

  PanelFetcher fetcher_;
  DeferredRows to_store_;
  int first_to_store_ = 0;  // The row of the first of their sums, which are in sums_[parity_].
  int parity_ = 0;          // Which of sums_ holds the sums that wait to be stored.
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT8_MANY_ROWS_H_
