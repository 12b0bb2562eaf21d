#ifndef QUIRE_KERNELS_CPU_PACKED_MATRIX_H_
#define QUIRE_KERNELS_CPU_PACKED_MATRIX_H_

#include <cstdint>
#include <memory>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace quire::cpu {

// A weight matrix [rows, cols] in panels of 32 rows, in the layout that kernel_table.h describes. A gated one is the
// gate over up, [2 * dim, cols], and its panels hold 16 rows of each. Immutable once made.
class CpuPackedMatrix : public PackedMatrix {
 public:
  // Stacks the matrices in row order; the type is theirs, float32 when they differ. Null when there is not enough
  // memory. REQUIRES: all have the same number of columns.
  static std::unique_ptr<CpuPackedMatrix> Make(const MatrixView* matrices, int num_matrices, ThreadPool* pool);
  // Likewise. REQUIRES: both have the same shape.
  static std::unique_ptr<CpuPackedMatrix> MakeGated(const MatrixView& gate, const MatrixView& up, ThreadPool* pool);

  bool is_gated() const { return is_gated_; }
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
  // Columns of the product, in all and per panel.
  int num_outputs() const { return is_gated_ ? rows_ / 2 : rows_; }
  int outputs_per_panel() const { return is_gated_ ? kGatedColumns : kPanelColumns; }
  int num_panels() const { return (num_outputs() + outputs_per_panel() - 1) / outputs_per_panel(); }
  // Elements of one panel.
  int64_t panel_elements() const { return int64_t{kPanelColumns} * padded_cols(); }
  const void* panel(int index) const;

  // y[0, cols) = the row as float32. REQUIRES: not gated.
  void CopyRow(int row, float* y) const;

 private:
  CpuPackedMatrix(int rows, int cols, DataType type, bool is_gated)
      : rows_(rows), cols_(cols), type_(type), is_gated_(is_gated) {}

  static std::unique_ptr<CpuPackedMatrix> Make(const MatrixView* matrices, int num_matrices, bool is_gated,
                                               ThreadPool* pool);
  // The row that lane `lane` of a panel holds; -1 for padding.
  int RowAt(int panel, int lane) const;

  int rows_;
  int cols_;
  DataType type_;
  bool is_gated_;
  Memory memory_;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_PACKED_MATRIX_H_
