// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_PACKED_MATRIX_H_
#define QUIRE_KERNELS_CPU_PACKED_MATRIX_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/cpu/linear/block_panels.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/half_float.h"
#include "kernels/linear.h"

namespace quire::cpu {

// Returns the format in which the kernels of a set multiply such a matrix.
WeightFormat FormatFor(QuantizedFormat format, const KernelTable& kernels);

// A weight matrix [rows, cols] in panels of 32 rows, in the layout of weight_panels.h. A gated matrix is the gate
// stacked on up, [2 * dim, cols], and each of its panels holds 16 rows of both. Immutable.
class CpuPackedMatrix : public PackedMatrix {
 public:
  // Stacks the matrices in row order. The result has their element type, or float32 when the types differ. Returns null
  // when there is not enough memory. REQUIRES: all have the same number of columns.
  static std::unique_ptr<CpuPackedMatrix> Make(const MatrixView* matrices, int num_matrices, ThreadPool* pool);
  // Makes a gated matrix in the same way. REQUIRES: both have the same shape.
  static std::unique_ptr<CpuPackedMatrix> MakeGated(const MatrixView& gate, const MatrixView& up, ThreadPool* pool);
  // Do the same for quantized matrices, in what FormatFor returns for their format. REQUIRES: all have the same format
  // and groups.
  static std::unique_ptr<CpuPackedMatrix> Make(const QuantizedMatrixView* matrices, int num_matrices,
                                               WeightFormat format, ThreadPool* pool);
  static std::unique_ptr<CpuPackedMatrix> MakeGated(const QuantizedMatrixView& gate, const QuantizedMatrixView& up,
                                                    WeightFormat format, ThreadPool* pool);
  // Do the same for matrices in blocks. A stack may have blocks of several types, a gated matrix has one.
  static std::unique_ptr<CpuPackedMatrix> Make(const BlockMatrixView* matrices, int num_matrices, ThreadPool* pool);
  static std::unique_ptr<CpuPackedMatrix> MakeGated(const BlockMatrixView& gate, const BlockMatrixView& up,
                                                    ThreadPool* pool);

  // The parts of a stack with several types of blocks, in row order; otherwise empty. Such a stack has no panels.
  const std::vector<std::unique_ptr<CpuPackedMatrix>>& parts() const { return parts_; }

  bool is_gated() const { return is_gated_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  // Number of columns that kernels read in the panels; columns from cols() on have no meaning. In panels of fp8 more
  // columns may follow, up to the end of the last group.
  int padded_cols() const { return (cols_ + step() - 1) / step() * step(); }
  WeightFormat format() const { return format_; }
  // Columns that share a scale, in panels of int4 and fp8; otherwise 0.
  int group() const { return group_; }
  // Slices in which products are summed.
  int num_slices() const { return num_slices_; }
  // REQUIRES: group() > 0.
  int num_groups() const { return (cols_ + group_ - 1) / group_; }
  // The elements of the input that the columns multiply, if that is not their own order; otherwise empty.
  const std::vector<int32_t>& order() const { return order_; }
  // Columns of the product: of all panels and of one panel.
  int num_outputs() const { return is_gated_ ? rows_ / 2 : rows_; }
  int outputs_per_panel() const { return is_gated_ ? kGatedColumns : kPanelColumns; }
  int num_panels() const { return (num_outputs() + outputs_per_panel() - 1) / outputs_per_panel(); }
  // Number of elements of one panel; of bytes if the matrix is quantized.
  int64_t panel_elements() const {
    if (IsInBlocks(format_)) {
      const BlockPanel layout = BlockPanelOf(BlockTypeOf(format_));
      return int64_t{cols_ / layout.unit} * layout.unit_bytes();
    }
    if (format_ == WeightFormat::kFp8) return int64_t{num_groups()} * Fp8GroupBytes(group_);
    if (group_ > 0) return int64_t{padded_cols() / group_} * Int4GroupBytes(group_);
    return int64_t{kPanelColumns} * padded_cols() + (format_ == WeightFormat::kInt8 ? kInt8ScaleBytes : 0);
  }
  const void* panel(int index) const;

  // Writes the row as float32 to y[0, cols). REQUIRES: not gated; numbers of floating point or blocks of one type.
  void CopyRow(int row, float* y) const;

 private:
  CpuPackedMatrix(int rows, int cols, WeightFormat format, int group, int num_slices, bool is_gated)
      : rows_(rows), cols_(cols), format_(format), group_(group), num_slices_(num_slices), is_gated_(is_gated) {}

  static std::unique_ptr<CpuPackedMatrix> Make(const MatrixView* matrices, int num_matrices, bool is_gated,
                                               ThreadPool* pool);
  static std::unique_ptr<CpuPackedMatrix> Make(const QuantizedMatrixView* matrices, int num_matrices,
                                               WeightFormat format, bool is_gated, ThreadPool* pool);
  static std::unique_ptr<CpuPackedMatrix> Make(const BlockMatrixView* matrices, int num_matrices, bool is_gated,
                                               ThreadPool* pool);
  // Takes the memory and calls pack(panel, row of the panel, row of the stack) for every row. Returns whether there was
  // enough memory.
  template <typename PackRow>
  bool Fill(ThreadPool* pool, PackRow&& pack);
  // Returns the row that lane `lane` of a panel holds; -1 for padding.
  int RowAt(int panel, int lane) const;
  // Columns are padded to a multiple of this.
  int step() const {
    return format_ == WeightFormat::kBFloat16 ? kBFloat16PanelStep
           : format_ == WeightFormat::kFp8    ? kFp8Step
           : format_ == WeightFormat::kInt8   ? kInt8PanelStep
           : group_ > 0                       ? group_
                                              : 1;
  }
  size_t element_bytes() const {
    if (format_ == WeightFormat::kInt8 || group_ > 0 || IsInBlocks(format_)) return 1;
    return format_ == WeightFormat::kFloat32 ? sizeof(float) : sizeof(BFloat16);
  }

  int rows_;
  int cols_;
  WeightFormat format_;
  int group_;
  int num_slices_;
  bool is_gated_;
  std::vector<int32_t> order_;
  std::vector<std::unique_ptr<CpuPackedMatrix>> parts_;
  Memory memory_;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_PACKED_MATRIX_H_
