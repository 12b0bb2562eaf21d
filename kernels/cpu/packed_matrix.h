#ifndef QUIRE_KERNELS_CPU_PACKED_MATRIX_H_
#define QUIRE_KERNELS_CPU_PACKED_MATRIX_H_

#include <cstdint>
#include <memory>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace quire::cpu {

// A weight matrix [rows, cols] in panels of 32 rows, in the layout that kernel_table.h describes. A gated matrix is the
// gate stacked on up, [2 * dim, cols], and each of its panels holds 16 rows of both. Immutable.
class CpuPackedMatrix : public PackedMatrix {
 public:
  // Stacks the matrices in row order. The result has their element type, or float32 when the types differ. Returns null
  // when there is not enough memory. REQUIRES: all have the same number of columns.
  static std::unique_ptr<CpuPackedMatrix> Make(const MatrixView* matrices, int num_matrices, ThreadPool* pool);
  // Makes a gated matrix in the same way. REQUIRES: both have the same shape.
  static std::unique_ptr<CpuPackedMatrix> MakeGated(const MatrixView& gate, const MatrixView& up, ThreadPool* pool);

  bool is_gated() const { return is_gated_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  // Number of columns in the panels; columns from cols() on are zeros.
  int padded_cols() const {
    return type_ == DataType::kBFloat16 ? (cols_ + kBFloat16PanelStep - 1) / kBFloat16PanelStep * kBFloat16PanelStep
                                        : cols_;
  }
  // A quantised type would use the same scheme with scales beside the panels. It needs another DataType here and its
  // own entry in KernelTable::linear.
  DataType type() const { return type_; }
  // Columns of the product: of all panels and of one panel.
  int num_outputs() const { return is_gated_ ? rows_ / 2 : rows_; }
  int outputs_per_panel() const { return is_gated_ ? kGatedColumns : kPanelColumns; }
  int num_panels() const { return (num_outputs() + outputs_per_panel() - 1) / outputs_per_panel(); }
  // Number of elements of one panel.
  int64_t panel_elements() const { return int64_t{kPanelColumns} * padded_cols(); }
  const void* panel(int index) const;

  // Writes the row as float32 to y[0, cols). REQUIRES: not gated.
  void CopyRow(int row, float* y) const;

 private:
  CpuPackedMatrix(int rows, int cols, DataType type, bool is_gated)
      : rows_(rows), cols_(cols), type_(type), is_gated_(is_gated) {}

  static std::unique_ptr<CpuPackedMatrix> Make(const MatrixView* matrices, int num_matrices, bool is_gated,
                                               ThreadPool* pool);
  // Returns the row that lane `lane` of a panel holds; -1 for padding.
  int RowAt(int panel, int lane) const;

  int rows_;
  int cols_;
  DataType type_;
  bool is_gated_;
  Memory memory_;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_PACKED_MATRIX_H_
