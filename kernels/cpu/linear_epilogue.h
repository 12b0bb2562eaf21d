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
  const Vec biased = AddFirst(sum, task.bias, column, n);
  StoreFirst(static_cast<float*>(task.y) + at, n, AddFirst(biased, task.residual, at, n));
}

QUIRE_INLINE Vec Silu(Vec a) {
  return Div(a, Add(Set(1.0f), Exp(Sub(Zero(), a))));
}

template <typename T>
QUIRE_INLINE void StoreGated(const LinearTask& task, int64_t row, int64_t column, Vec gate, Vec up) {
  const int n = Min(kLanes, int(task.num_columns - column));
  const Vec silu = Silu(AddFirst(gate, task.bias, column, n));
  StoreFirst(static_cast<T*>(task.y) + row * task.y_stride + column, n,
             Mul(silu, AddFirst(up, task.up_bias, column, n)));
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
