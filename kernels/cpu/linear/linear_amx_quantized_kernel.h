// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_QUANTIZED_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_QUANTIZED_KERNEL_H_

#include "kernels/cpu/isa/amx_tile.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_amx_deferred_rows.h"
#include "kernels/cpu/linear/linear_amx_fetch.h"
#include "kernels/cpu/linear/linear_amx_int4_many_rows.h"
#include "kernels/cpu/linear/linear_amx_int8_many_rows.h"
#include "kernels/cpu/linear/linear_amx_quantized_tiles.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/linear/linear_task.h"

// Multiplication of rounded inputs by int8 and int4 weights with AMX tiles.
//
// Tiles and vectors work at the same time. So each step of a pass over a panel has a part of the vector work: it
// converts weights of int4 for later steps, combines sums of the groups before, and stores rows of the pass before.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Multiplies the rows of a task by its panels, 32 rows in a pass. All rows pass over a panel before the next panel.
// No tile extends beyond the last row. Instead the last pass may begin earlier, and its first rows are computed twice
// and stored once.
template <typename Format>
class QuantizedProduct {
 public:
  explicit QuantizedProduct(const LinearTask& task)
      : task_(task),
        format_(task),
        num_passes_((task.num_rows + kPassRows - 1) / kPassRows),
        slice_steps_(format_.num_steps() / task.num_slices),
        groups_at_once_(Max(1, Min(Format::kMostGroups, kStepsAtOnce / format_.steps_per_group()))),
        stores_per_step_((kPassRows + format_.num_steps() - 1) / Max(1, format_.num_steps() - kStepsAtOnce)),
        ring_steps_(num_passes_ == 1 ? kRingSteps : 2 * format_.num_steps()),
        panels_(static_cast<const char*>(task.w.panels)),
        fetcher_(task, num_passes_ * format_.num_steps()) {}

  void Run() {
    TileShapes shapes;
    const int tile_rows = Min(task_.num_rows, kTileRows);
    for (const int tile : {kSum00, kSum01, kSum10, kSum11}) shapes.Set(tile, tile_rows, kTileRowBytes);
    for (const int tile : {kX0, kX1}) shapes.Set(tile, tile_rows, format_.columns());
    for (const int tile : {kW0, kW1}) shapes.Set(tile, format_.columns() / 4, kTileRowBytes);
    ConfigureTiles(shapes);
    if constexpr (Format::kIsConverted) {
      const int steps_ahead = num_passes_ == 1 ? kRingSteps / 2 : format_.num_steps();
      for (int i = 0; i < steps_ahead; ++i) {
        for (int pass = 0; pass < num_passes_; ++pass) fetcher_.Fetch();
        ConvertStep();
      }
    }
    for (int index = 0; index < task_.num_panels; ++index) {
      for (int row = 0; row < task_.num_rows; row += kPassRows) {
        const int end = Min(row + kPassRows, task_.num_rows);
        if (end - row <= kTileRows) {
          Pass<1>(index, row, end);
        } else {
          Pass<2>(index, row, end);
        }
      }
    }
    CombineRows(kPassRows);
    StoreRowsOfPass(kPassRows);
    ReleaseTiles();
  }

 private:
  // Number of steps of converted weights in the ring. With one pass, they stay in the first-level cache.
  static constexpr int kRingSteps = 8;
  static constexpr int kStepsAtOnce = 4;  // Steps whose sums are combined at once. More would not stay in that cache.

  // Rows whose sums wait to be combined or stored. The buffer with this parity holds them, from row `first` on.
  struct WaitingRows {
    DeferredRows rows;
    int first, parity;
  };
  // Combines the sums of the next groups when it is their turn.
  struct WaitingGroups {
    int begin, count;
    int slice;
    bool begins_slice, ends_slice;  // Whether they are the first or the last of the slice.
  };

  // Multiplies the rows [row, end) by a panel in kTiles tiles of rows.
  template <int kTiles>
  QUIRE_INLINE void Pass(int index, int row, int end) {
    const int first = Max(0, Min(row, task_.num_rows - kTiles * kTileRows));
    const int second = Max(0, Min(first + kTileRows, task_.num_rows - kTileRows));
    const char* x0 = format_.x() + first * task_.x.stride;
    const char* x1 = format_.x() + second * task_.x.stride;
    const char* const panel = PanelAt(index);
    const int num_steps = format_.num_steps();
    int slot = panel_slot_;
    for (int step = 0, group = 0, slice = 0, slice_end = slice_steps_; step < num_steps;) {
      const int part_end = Min(step + groups_at_once_ * format_.steps_per_group(), slice_end);
      const int rows_per_step = (kPassRows + part_end - step - 1) / (part_end - step);
      WaitingGroups groups = {group, 0, slice, step + slice_steps_ == slice_end, part_end == slice_end};
      for (; step < part_end; ++group) {
        const int group_end = Min(step + format_.steps_per_group(), num_steps);
        ZeroTile<kSum00>();
        ZeroTile<kSum01>();
        if constexpr (kTiles == 2) {
          ZeroTile<kSum10>();
          ZeroTile<kSum11>();
        }
        for (; step < group_end; ++step, x0 += format_.columns(), x1 += format_.columns()) {
          const char* w;
          if constexpr (Format::kIsConverted) {
            w = static_cast<const char*>(task_.scratch) + slot * kStepBytes;
            if (++slot == ring_steps_) slot = 0;
          } else {
            w = format_.WeightsAt(panel, step);
          }
          LoadTile<kW0>(w, kWeightStride);
          LoadTile<kX0>(x0, task_.x.stride);
          LoadTile<kW1>(w + kTileRowBytes, kWeightStride);
          if constexpr (kTiles == 2) LoadTile<kX1>(x1, task_.x.stride);
          Format::template Multiply<kSum00, kX0, kW0>();
          Format::template Multiply<kSum01, kX0, kW1>();
          if constexpr (kTiles == 2) {
            Format::template Multiply<kSum10, kX1, kW0>();
            Format::template Multiply<kSum11, kX1, kW1>();
          }
          fetcher_.Fetch();  // The next panel is fetched when all rows have passed over this one.
          FetchOutput(task_, index, row + step, Min(row + step + 1, end));
          if constexpr (Format::kIsConverted) ConvertInTurn();
          StoreRowsOfPass(stores_per_step_);
          CombineRows(rows_per_step);
        }
        int32_t* const sums = sums_[sums_parity_][groups.count++];
        StoreTile<kSum00>(sums, kSumsStride);
        StoreTile<kSum01>(sums + kLanes, kSumsStride);
        if constexpr (kTiles == 2) {
          int32_t* const below = sums + (second - first) * kPanelColumns;
          StoreTile<kSum10>(below, kSumsStride);
          StoreTile<kSum11>(below + kLanes, kSumsStride);
        }
      }
      CombineRows(kPassRows);
      to_combine_.first = first;
      to_combine_.parity = sums_parity_;
      to_combine_.rows.Replace(index, row, end);
      groups_ = groups;
      pass_begin_ = row;
      sums_parity_ = 1 - sums_parity_;
      if (groups.ends_slice) {
        ++slice;
        slice_end += slice_steps_;
      }
    }
    if (end == task_.num_rows) panel_slot_ = slot;
  }

  // Combines the sums of up to `rows` more rows with the scales of their groups. After the last group the rows of the
  // pass may be stored.
  QUIRE_INLINE void CombineRows(int rows) {
    to_combine_.rows.Take(
        rows, [&](int row, int end) __attribute__((always_inline)) {
          CombineGroups<Format::kMostGroups>(row, end);
          const bool is_last = (groups_.begin + groups_.count) * format_.steps_per_group() >= format_.num_steps();
          if (!to_combine_.rows.is_empty() || !is_last) return;
          StoreRowsOfPass(kPassRows);
          to_store_.first = to_combine_.first;
          to_store_.parity = products_parity_;
          to_store_.rows.Replace(to_combine_.rows.index(), pass_begin_, end);
          products_parity_ = 1 - products_parity_;
        });
  }
  // Combines the rows [first_row, end).
  template <int kGroups>
  void CombineGroups(int first_row, int end) {
    if constexpr (kGroups > 1) {
      if (groups_.count < kGroups) return CombineGroups<kGroups - 1>(first_row, end);
    }
    const char* const panel = PanelAt(to_combine_.rows.index());
    const int begin = groups_.begin, num_earlier = NumEarlierSums(groups_.slice);
    const bool ends_slice = groups_.ends_slice, is_kept = ends_slice && groups_.slice + 1 < task_.num_slices;
    Vec left_scales[kGroups], right_scales[kGroups];
    Unroll<kGroups>([&]<int g>() __attribute__((always_inline)) {
      left_scales[g] = format_.Scales(panel, begin + g, 0);
      right_scales[g] = format_.Scales(panel, begin + g, 1);
    });
    for (int row = first_row; row < end; ++row) {
      const int at = (row - to_combine_.first) * kPanelColumns;
      float* const y = products_[products_parity_] + at;
      Vec left = groups_.begins_slice ? Zero() : Load(y);
      Vec right = groups_.begins_slice ? Zero() : Load(y + kLanes);
      Unroll<kGroups>([&]<int g>() __attribute__((always_inline)) {
        const int32_t* const sums = sums_[to_combine_.parity][g] + at;
        left = format_.Combine(left, sums, row, begin + g, left_scales[g]);
        right = format_.Combine(right, sums + kLanes, row, begin + g, right_scales[g]);
      });
      if (ends_slice) {
        left = AddEarlier(left, num_earlier, &earlier_[0][at], kPassRows * kPanelColumns);
        right = AddEarlier(right, num_earlier, &earlier_[0][at + kLanes], kPassRows * kPanelColumns);
      }
      float* const to = is_kept ? &earlier_[num_earlier][at] : y;
      Store(to, left);
      Store(to + kLanes, right);
    }
  }

  // Stores up to `rows` more rows of the last pass whose sums have been combined.
  QUIRE_INLINE void StoreRowsOfPass(int rows) {
    to_store_.rows.Take(
        rows, [&](int row, int end) __attribute__((always_inline)) {
          StoreRows(task_, row, end, to_store_.rows.index(),
                    products_[to_store_.parity] + (row - to_store_.first) * kPanelColumns);
        });
  }

  // Converts the weights of one step, in such steps that the next panel is converted when all rows have passed over
  // this one.
  QUIRE_INLINE void ConvertInTurn() {
    if (--steps_to_conversion_ > 0) return;
    steps_to_conversion_ = num_passes_;
    ConvertStep();
  }
  QUIRE_INLINE void ConvertStep() {
    if (converted_panels_ == task_.num_panels) return;
    char* const to = static_cast<char*>(task_.scratch) + converted_slot_ * kStepBytes;
    format_.Convert(PanelAt(converted_panels_), converted_steps_, to);
    if (++converted_slot_ == ring_steps_) converted_slot_ = 0;
    if (++converted_steps_ < format_.num_steps()) return;
    converted_steps_ = 0;
    ++converted_panels_;
  }

  const char* PanelAt(int index) const { return panels_ + index * task_.w.panel_elements; }

  alignas(64) int32_t sums_[2][Format::kMostGroups][kPassRows * kPanelColumns];
  alignas(64) float products_[2][kPassRows * kPanelColumns];
  // The sums of slices are kept here until they are added.
  alignas(64) float earlier_[Format::kIsConverted ? kMaxEarlierSums : 1][kPassRows * kPanelColumns];
  const LinearTask& task_;
  const Format format_;
  const int num_passes_;
  const int slice_steps_;  // Number of steps in all groups of a slice.
  const int groups_at_once_;
  const int stores_per_step_;
  const int ring_steps_;  // Steps of weights that the scratch holds: a few, or two panels.
  const char* const panels_;

  PanelFetcher fetcher_;
  WaitingRows to_combine_ = {}, to_store_ = {};
  WaitingGroups groups_ = {};  // Of to_combine_.
  int pass_begin_ = 0;         // The first row of the pass of to_combine_.
  int sums_parity_ = 0, products_parity_ = 0;
  int panel_slot_ = 0;                                                   // The panel begins here in the ring.
  int converted_panels_ = 0, converted_steps_ = 0, converted_slot_ = 0;  // What is converted next, and where.
  int steps_to_conversion_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_QUANTIZED_KERNEL_H_
