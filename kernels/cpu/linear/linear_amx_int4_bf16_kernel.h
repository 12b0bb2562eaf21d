// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_BF16_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_BF16_KERNEL_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/int4_bf16_weights.h"
#include "kernels/cpu/linear/linear_amx_fetch.h"
#include "kernels/cpu/linear/linear_amx_int4_bf16_many_rows.h"
#include "kernels/cpu/linear/linear_amx_quantized_tiles.h"
#include "kernels/cpu/linear/linear_amx_tiles.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/linear/linear_task.h"

// Multiplication of up to 32 rows of bfloat16 by int4 weights with AMX tiles. Weights become bfloat16 in a ring of a
// few steps that stays in the first-level cache. Tiles and vectors work at the same time, so each step of tiles has a
// part of the conversion of a later group.
//
// A converted unit has 32 k of a column, which is a row of the left-hand tile. So columns are the rows of the sums, and
// rows of x are their columns; the inputs are in pairs of k. A product of tiles adds the same products in the same
// order as with the operands exchanged, so the bits are the same as in linear_amx_kernel.h.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

inline void PairRows(const PairRowsTask& task) {
  BFloat16* to = task.y;
  for (int k = 0; k < task.cols; k += kProductSteps, to += task.step_stride) {
    const int n = Min(kProductSteps, task.cols - k);
    const __mmask32 columns = __mmask32(n == kProductSteps ? ~0u : (1u << n) - 1);
    __m512i rows[kTileRows];
    for (int row = 0; row < kTileRows; ++row) {
      rows[row] = row < task.num_rows ? _mm512_maskz_loadu_epi16(columns, task.x + row * task.x_stride + k)
                                      : _mm512_setzero_si512();
    }
    Transpose(rows);
    for (int pair = 0; pair < kTileRows; ++pair) {
      _mm512_mask_storeu_epi32(to + pair * task.y_stride, FirstLanes(task.num_rows), rows[pair]);
    }
  }
}

// kUnits is the number of steps of a group, and kTiles that of tiles of x.
template <int kUnits, int kTiles>
class FewRowsInt4BFloat16 {
 public:
  explicit FewRowsInt4BFloat16(const LinearTask& task)
      : task_(task),
        num_steps_((task.cols + kProductSteps - 1) / kProductSteps),
        num_groups_((task.cols + task.w.group - 1) / task.w.group),
        x_stride_(int(task.x.stride) * int(sizeof(BFloat16))),
        weights_(static_cast<const uint8_t*>(task.w.panels)),
        weights_end_(weights_ + task.num_panels * task.w.panel_elements),
        ring_(static_cast<BFloat16*>(task.scratch)),
        fetcher_(task, num_steps_) {}

  void Run() {
    TileShapes shapes;
    const int first = Min(task_.num_rows, kTileRows) * int(sizeof(float));
    const int second = (task_.num_rows - kTileRows) * int(sizeof(float));
    for (const int tile : {kX0, kX1}) shapes.Set(tile, kTileRows, kTileRowBytes);
    for (const int tile : {kW0, kSum00, kSum10}) shapes.Set(tile, kTileRows, first);
    if constexpr (kTiles == 2) {
      for (const int tile : {kW1, kSum01, kSum11}) shapes.Set(tile, kTileRows, second);
    }
    ConfigureTiles(shapes);
    for (int i = 0; i < kGroupsAhead; ++i) {
      for (int line = 0; line < kLines; ++line) Convert(line);
      NextConversion();
    }
    for (int index = 0; index < task_.num_panels; ++index) {
      MultiplyPanel(index);
      StorePanel(index);
    }
    ReleaseTiles();
  }

 private:
  static constexpr int kGroupsAhead = kInt4LineUnits / kUnits;
  static constexpr int kRingGroups = 2 * kGroupsAhead;  // A power of two.
  static constexpr int kLines = Int4LinesOfGroup(kUnits);
  static constexpr int kLinesPerStep = kLines / kUnits;
  // The sums of a slice are [32][kStride], or [32] if there is one row.
  static constexpr int kStride = kTiles * kTileRows;

  // The first half of the ring is one buffer, and the second half is the other.
  BFloat16* RingGroup(int i) const {
    return ring_ + i / kGroupsAhead * kConvertedElements + i % kGroupsAhead * kUnits * kConvertedStride;
  }
  QUIRE_INLINE void Convert(int line) {
    if (weights_ == weights_end_) return;
    ConvertLine<kUnits>(weights_, line, RingGroup(to_));
  }
  QUIRE_INLINE void NextConversion() {
    if (weights_ == weights_end_) return;
    weights_ += Int4GroupBytes(kUnits * kInt4UnitColumns);
    to_ = (to_ + 1) % kRingGroups;
  }

  bool is_row() const { return task_.num_rows == 1; }
  int SumsOfSlice() const { return is_row() ? kPanelColumns : kPanelColumns * kStride; }

  // sums_[slice] = the products of all rows by a panel.
  QUIRE_INLINE void MultiplyPanel(int index) {
    const BFloat16* x = static_cast<const BFloat16*>(task_.x.data);
    const int groups_of_slice = num_groups_ / task_.num_slices;
    const int stride = is_row() ? 1 : kStride;
    float* sums = sums_;
    int step = 0;
    for (int slice = 0; slice < task_.num_slices; ++slice, sums += SumsOfSlice()) {
      ZeroTile<kSum00>();
      ZeroTile<kSum10>();
      if constexpr (kTiles == 2) {
        ZeroTile<kSum01>();
        ZeroTile<kSum11>();
      }
      for (int group = 0; group < groups_of_slice; ++group) {
        const BFloat16* w = RingGroup(from_);
        from_ = (from_ + 1) % kRingGroups;
        for (int i = 0; i < kUnits; ++i, ++step, w += kConvertedStride, x += kProductSteps / 2 * task_.x.stride) {
          if (step < num_steps_) MultiplyStep(x, w);
          fetcher_.Fetch();
          FetchOutput(task_, index, step, Min(step + 1, task_.num_rows));
          for (int line = 0; line < kLinesPerStep; ++line) Convert(i * kLinesPerStep + line);
        }
        NextConversion();
      }
      StoreTile<kSum00>(sums, stride * int(sizeof(float)));
      StoreTile<kSum10>(sums + kTileRows * stride, stride * int(sizeof(float)));
      if constexpr (kTiles == 2) {
        StoreTile<kSum01>(sums + kTileRows, stride * int(sizeof(float)));
        StoreTile<kSum11>(sums + kTileRows * stride + kTileRows, stride * int(sizeof(float)));
      }
    }
  }
  QUIRE_INLINE void MultiplyStep(const BFloat16* x, const BFloat16* w) const {
    LoadTile<kX0>(w, kTileRowBytes);
    LoadTile<kW0>(x, x_stride_);
    LoadTile<kX1>(w + kTileElements, kTileRowBytes);
    if constexpr (kTiles == 2) LoadTile<kW1>(x + 2 * kTileRows, x_stride_);
    MultiplyTiles<kSum00, kX0, kW0>();
    MultiplyTiles<kSum10, kX1, kW0>();
    if constexpr (kTiles == 2) {
      MultiplyTiles<kSum01, kX0, kW1>();
      MultiplyTiles<kSum11, kX1, kW1>();
    }
  }

  QUIRE_INLINE void StorePanel(int index) {
    AddSlices(task_.num_slices, SumsOfSlice(), SumsOfSlice(), sums_);
    if (is_row()) return StoreRows(task_, 0, 1, index, sums_);
    for (int tile = 0; tile < kTiles; ++tile) {
      for (int half = 0; half < 2; ++half) {
        TransposeSums(sums_ + half * kTileRows * kStride + tile * kTileRows, kStride,
                      rows_ + tile * kTileSums + half * kTileRows);
      }
    }
    StoreRows(task_, 0, task_.num_rows, index, rows_);
  }

  const LinearTask& task_;
  const int num_steps_;
  const int num_groups_;
  const int x_stride_;      // In bytes.
  const uint8_t* weights_;  // The group that is converted next.
  const uint8_t* const weights_end_;
  BFloat16* const ring_;   // Room for kRingGroups groups.
  int to_ = 0, from_ = 0;  // What is converted and what is multiplied next in the ring.
  PanelFetcher fetcher_;
  alignas(64) float sums_[kMaxSlices * kPanelColumns * kStride];
  alignas(64) float rows_[kTiles * kTileSums];
};

template <int kUnits>
inline void LinearInt4Units(const LinearTask& task) {
  if (task.x.is_tiled) return ManyRowsInt4BFloat16<kUnits>(task).Run();
  if (task.num_rows <= kTileRows) return FewRowsInt4BFloat16<kUnits, 1>(task).Run();
  FewRowsInt4BFloat16<kUnits, 2>(task).Run();
}

inline void LinearInt4Units(const LinearTask& task) {
  if (task.w.group == 4 * kInt4UnitColumns) return LinearInt4Units<4>(task);
  if (task.w.group == 2 * kInt4UnitColumns) return LinearInt4Units<2>(task);
  LinearInt4Units<1>(task);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_INT4_BF16_KERNEL_H_
