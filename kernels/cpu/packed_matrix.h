#ifndef QUIRE_KERNELS_CPU_PACKED_MATRIX_H_
#define QUIRE_KERNELS_CPU_PACKED_MATRIX_H_

#include <cstdint>
#include <memory>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace quire::cpu {

// A weight matrix [rows, cols] in panels of 32 rows, in the layout that kernel_table.h describes. Immutable once made.
class CpuPackedMatrix : public PackedMatrix {
 public:
  // Stacks the matrices in row order; the type is theirs, float32 when they differ. Null when there is not enough
  // memory. REQUIRES: all have the same number of columns.
  static std::unique_ptr<CpuPackedMatrix> Make(const MatrixView* matrices, int num_matrices, ThreadPool* pool);

  int rows() const { return rows_; }
  int cols() const { return cols_; }
  // Columns in the panels, zeros from cols() on.
  int padded_cols() const {
    return type_ == DataType::kBFloat16 ? (cols_ + kBFloat16PanelStep - 1) / kBFloat16PanelStep * kBFloat16PanelStep
                                        : cols_;
  }
  // The panels of a quantised type would follow the same scheme with scales beside them: a further DataType here, and
  // an entry of its own in KernelTable::linear.
  DataType type() const { return type_; }
  int num_panels() const { return (rows_ + kPanelColumns - 1) / kPanelColumns; }
  // Elements of one panel.
  int64_t panel_elements() const { return int64_t{kPanelColumns} * padded_cols(); }
  const void* panel(int index) const;

  // y[0, cols) = the row as float32.
  void CopyRow(int row, float* y) const;

 private:
  CpuPackedMatrix(int rows, int cols, DataType type) : rows_(rows), cols_(cols), type_(type) {}

  int rows_;
  int cols_;
  DataType type_;
  Memory memory_;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_PACKED_MATRIX_H_
