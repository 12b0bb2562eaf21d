#ifndef QUIRE_KERNELS_CPU_LINEAR_EPILOGUE_H_
#define QUIRE_KERNELS_CPU_LINEAR_EPILOGUE_H_

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd.h"

// What happens to the sums of a multiplication before they are stored.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Adds bias and residual and stores one vector of `n` columns of one row.
QUIRE_INLINE void StoreColumns(const LinearTask& task, int64_t row, int64_t column, Vec sum) {
  const int n = Min(kLanes, int(task.num_columns - column));
  if (n <= 0) return;
  if (task.bias != nullptr) sum = Add(sum, LoadFirst(task.bias + column, n));
  const int64_t at = row * task.y_stride + column;
  if (task.residual != nullptr) sum = Add(sum, LoadFirst(task.residual + at, n));
  StoreFirst(task.y + at, n, sum);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_EPILOGUE_H_
