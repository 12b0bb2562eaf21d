// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_EPILOGUE_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_EPILOGUE_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/vector_math.h"
#include "kernels/cpu/linear/linear_task.h"

// Processing of the sums of a multiplication before they are stored.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

QUIRE_INLINE Vec AddFirst(Vec sum, const float* terms, int64_t at, int n) {
  return terms == nullptr ? sum : Add(sum, LoadFirst(terms + at, n));
}

// Stores one vector of up to 16 columns of one row.
QUIRE_INLINE void StoreColumns(const LinearTask& task, int64_t row, int64_t column, Vec sum) {
  const int n = Min(kLanes, int(task.y.num_columns - column));
  if (n <= 0) return;
  const int64_t at = row * task.y.stride + column;
  Vec y = AddFirst(sum, task.y.bias, column, n);
  if (task.y.scale != 1) y = Mul(y, Set(task.y.scale));
  if (task.y.softcap > 0) y = Softcap(y, task.y.softcap);
  StoreFirst(static_cast<float*>(task.y.data) + at, n, AddFirst(y, task.y.residual, at, n));
}

QUIRE_INLINE Vec Silu(Vec a) {
  return Div(a, Add(Set(1.0f), Exp(Sub(Zero(), a))));
}

// The constants are 2 sqrt(2 / pi) and 0.044715 times that.
QUIRE_INLINE Vec GeluTanh(Vec a) {
  const Vec slope = Fma(Mul(a, a), Set(0.07135481283f), Set(1.5957691216f));
  return Div(a, Add(Set(1.0f), Exp(Sub(Zero(), Mul(a, slope)))));
}

// Returns the product of the activated gate and up, both with their biases.
QUIRE_INLINE Vec Gated(Activation activation, Vec gate, Vec up) {
  if (activation == Activation::kSilu) return Mul(Silu(gate), up);
  if (activation == Activation::kGeluTanh) return Mul(GeluTanh(gate), up);
  // NaN stays NaN as the second operand.
  const Vec limit = Set(kSwigluLimit), a = Min(limit, gate);
  const Vec clamped = Max(Set(-kSwigluLimit), Min(limit, up));
  const Vec active = Div(a, Add(Set(1.0f), Exp(Mul(a, Set(-kSwigluAlpha)))));
  return Mul(active, Add(clamped, Set(1.0f)));
}

// `to` is the place of the first column.
template <typename T>
QUIRE_INLINE void StoreGated(const LinearTask& task, int64_t column, Vec gate, Vec up, T* to) {
  const int n = Min(kLanes, int(task.y.num_columns - column));
  const Vec biased = AddFirst(gate, task.y.bias, column, n);
  StoreFirst(to, n, Gated(task.y.activation, biased, AddFirst(up, task.y.up_bias, column, n)));
}

// Columns of y in tiles: the columns of a panel of a gated matrix, which are half a tile.
class TiledColumns {
 public:
  TiledColumns() = default;
  TiledColumns(const LinearTask& task, int index) : first_row_(task.first_row) {
    const int column = task.first_column + index * kGatedColumns;
    const KBlocks blocks = StepBlocks(int(task.y.stride), task.y.slices);
    const int step = column / kTileStep, block = blocks.BlockOf(step), first = blocks.First(block);
    part_elements_ = kTilePairElements * blocks.Count(block);
    start_ = static_cast<BFloat16*>(task.y.data) + int64_t{task.x.num_tile_pairs} * kTilePairElements * first +
             (step - first) * kTilePairElements + column % kTileStep;
  }

  // Returns the place of a row of the task.
  QUIRE_INLINE BFloat16* Row(int row) const {
    row += first_row_;
    return start_ + int64_t{row / kTilePairRows} * part_elements_ + row % kTilePairRows * kTileStep;
  }

 private:
  int first_row_ = 0;
  int part_elements_ = 0;  // Elements of a pair of tiles in the block.
  BFloat16* start_ = nullptr;
};

// Stores rows [row, end) of panel `index` of the task in tiles; sums is [end - row, 32].
inline void StoreTiledRows(const LinearTask& task, int row, int end, int index, const TiledColumns& columns,
                           const float* sums) {
  for (; row < end; ++row, sums += kPanelColumns) {
    StoreGated(task, int64_t{index} * kGatedColumns, Load(sums), Load(sums + kLanes), columns.Row(row));
  }
}

// Does the same for y in rows.
inline void StoreRows(const LinearTask& task, int row, int end, int index, const float* sums) {
  for (; row < end; ++row, sums += kPanelColumns) {
    const Vec left = Load(sums), right = Load(sums + kLanes);
    const int64_t column = int64_t{index} * kGatedColumns;
    if (!task.w.is_gated) {
      StoreColumns(task, row, int64_t{index} * kPanelColumns, left);
      StoreColumns(task, row, int64_t{index} * kPanelColumns + kLanes, right);
    } else if (task.y.type == DataType::kBFloat16) {
      StoreGated(task, column, left, right, static_cast<BFloat16*>(task.y.data) + row * task.y.stride + column);
    } else {
      StoreGated(task, column, left, right, static_cast<float*>(task.y.data) + row * task.y.stride + column);
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_EPILOGUE_H_
