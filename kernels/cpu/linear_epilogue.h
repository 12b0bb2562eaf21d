// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_EPILOGUE_H_
#define QUIRE_KERNELS_CPU_LINEAR_EPILOGUE_H_

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/vector_math.h"

// Processing of the sums of a multiplication before they are stored.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

QUIRE_INLINE Vec AddFirst(Vec sum, const float* terms, int64_t at, int n) {
  return terms == nullptr ? sum : Add(sum, LoadFirst(terms + at, n));
}

// Stores one vector of up to 16 columns of one row.
QUIRE_INLINE void StoreColumns(const LinearTask& task, int64_t row, int64_t column, Vec sum) {
  const int n = Min(kLanes, int(task.num_columns - column));
  if (n <= 0) return;
  const int64_t at = row * task.y_stride + column;
  Vec y = AddFirst(sum, task.bias, column, n);
  if (task.scale != 1) y = Mul(y, Set(task.scale));
  if (task.softcap > 0) y = Softcap(y, task.softcap);
  StoreFirst(static_cast<float*>(task.y) + at, n, AddFirst(y, task.residual, at, n));
}

QUIRE_INLINE Vec Silu(Vec a) {
  return Div(a, Add(Set(1.0f), Exp(Sub(Zero(), a))));
}

// The constants are 2 sqrt(2 / pi) and 0.044715 times that.
QUIRE_INLINE Vec GeluTanh(Vec a) {
  const Vec slope = Fma(Mul(a, a), Set(0.07135481283f), Set(1.5957691216f));
  return Div(a, Add(Set(1.0f), Exp(Sub(Zero(), Mul(a, slope)))));
}

template <typename T>
QUIRE_INLINE void StoreGated(const LinearTask& task, int64_t row, int64_t column, Vec gate, Vec up) {
  const int n = Min(kLanes, int(task.num_columns - column));
  const Vec biased = AddFirst(gate, task.bias, column, n);
  const Vec active = task.activation == Activation::kSilu ? Silu(biased) : GeluTanh(biased);
  StoreFirst(static_cast<T*>(task.y) + row * task.y_stride + column, n,
             Mul(active, AddFirst(up, task.up_bias, column, n)));
}

// Stores rows [row, end) of panel `index` of the task; sums is [end - row, 32].
inline void StoreRows(const LinearTask& task, int row, int end, int index, const float* sums) {
  for (; row < end; ++row, sums += kPanelColumns) {
    const Vec left = Load(sums), right = Load(sums + kLanes);
    if (!task.is_gated) {
      StoreColumns(task, row, int64_t{index} * kPanelColumns, left);
      StoreColumns(task, row, int64_t{index} * kPanelColumns + kLanes, right);
    } else if (task.y_type == DataType::kBFloat16) {
      StoreGated<BFloat16>(task, row, int64_t{index} * kGatedColumns, left, right);
    } else {
      StoreGated<float>(task, row, int64_t{index} * kGatedColumns, left, right);
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_EPILOGUE_H_
