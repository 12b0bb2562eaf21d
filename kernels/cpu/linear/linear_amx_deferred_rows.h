// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_DEFERRED_ROWS_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_DEFERRED_ROWS_H_

#include <cstdint>

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_task.h"

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Rows of a pass over a panel, whose sums wait to be processed. Tiles and vectors work at the same time, so the vector
// work on these rows is done a few rows at a time between the products of the next pass.
class DeferredRows {
 public:
  bool is_empty() const { return row_ == end_; }
  // REQUIRES: is_empty().
  void Replace(int index, int row, int end) {
    index_ = index;
    row_ = row;
    end_ = end;
  }
  int index() const { return index_; }  // Index of the panel.
  int size() const { return end_ - row_; }
  // Calls work(row, until) for the next rows, at most `count` of them, if there are any.
  template <typename Work>
  QUIRE_INLINE void Take(int count, Work&& work) {
    const int row = row_, until = Min(row + count, end_);
    if (row == until) return;
    row_ = until;
    work(row, until);
  }

 private:
  int index_ = 0;
  int row_ = 0, end_ = 0;
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_DEFERRED_ROWS_H_
