// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_BYTE_MATRIX_H_
#define QUIRE_KERNELS_CUDA_BYTE_MATRIX_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matrix.h"
#include "kernels/linear.h"

namespace quire::cuda {

// All stacked matrices of int8 or FP8 on the device, for products of rounded rows. The numbers are row-major, because
// the kernel of rounded_product.h and the device's library both read them so. The device must outlive them.
class ByteCudaMatrix : public DeviceMatrix {
 public:
  // Returns whether the matrices are all int8, or all FP8 of a checkpoint with one scale for each row, or all FP8 in
  // blocks of 128 x 128. Blocks must be whole, apart from the last one of the last matrix, which may lack rows.
  static bool CanPack(const QuantizedMatrixView* matrices, int num_matrices);
  // Copies the matrices to the device. Returns null when there is not enough memory. REQUIRES: CanPack, and the number
  // of columns is a multiple of 8. The worker refuses models with other matrices.
  static std::unique_ptr<ByteCudaMatrix> Pack(Device* device, const QuantizedMatrixView* matrices, int num_matrices);
  ~ByteCudaMatrix() override;

  // Returns a copy in other memory of the device, or null when there is not enough. Benchmarks use many copies.
  std::unique_ptr<ByteCudaMatrix> Copy() const;

  const ByteCudaMatrix* byte_matrix() const override { return this; }
  QuantizedFormat format() const { return format_; }
  bool has_blocks() const { return has_blocks_; }   // Blocks of 128 x 128 share a scale, and not rows.
  int depth() const { return depth_; }              // The columns, rounded up to whole blocks of 128.
  int padded_rows() const { return padded_rows_; }  // The rows, rounded up to whole tiles of 16.
  const int8_t* values() const { return values_; }  // [padded_rows, depth]; what the matrix does not have is 0.
  // [padded_rows], or in blocks [ceil(rows / 128)][scale_stride]. Scales of what the matrix does not have are 0.
  const float* scales() const { return scales_; }
  int scale_stride() const { return scale_stride_; }  // The blocks of a row, rounded up to a multiple of 4.
  // Returns what a product has to read.
  int64_t num_bytes() const { return int64_t(value_bytes() + scale_bytes()); }

 private:
  ByteCudaMatrix(Device* device, QuantizedFormat format, bool has_blocks, int rows, int cols);
  size_t value_bytes() const { return size_t(padded_rows_) * depth_; }
  size_t num_scales() const;
  size_t scale_bytes() const { return num_scales() * sizeof(float); }
  bool Allocate();
  void Upload(const QuantizedMatrixView* matrices, int num_matrices);
  // Appends the scales of a matrix. Scales of blocks are the same in all rows of a block.
  void AppendScales(const QuantizedMatrixView& matrix, std::vector<float>* scales) const;

  Device* const device_;
  const QuantizedFormat format_;
  const bool has_blocks_;
  const int depth_;
  const int padded_rows_;
  const int scale_stride_;
  int8_t* values_ = nullptr;
  float* scales_ = nullptr;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_BYTE_MATRIX_H_
