// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_MATRIX_H_
#define QUIRE_KERNELS_CUDA_MATRIX_H_

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.h"
#include "kernels/cuda/fatal.h"
#include "kernels/linear.h"

namespace quire::cuda {

class ByteCudaMatrix;
class QuantizedCudaMatrix;

// A matrix on the device. Used by one thread.
class DeviceMatrix : public PackedMatrix {
 public:
  int rows() const { return rows_; }  // All stacked matrices count.
  int cols() const { return cols_; }
  // Returns the matrix if its numbers are quantized and multiply rows of 16 bits, and null otherwise.
  virtual const QuantizedCudaMatrix* quantized() const { return nullptr; }
  // Returns the matrix if its numbers have 8 bits and multiply rounded rows, and null otherwise.
  virtual const ByteCudaMatrix* byte_matrix() const { return nullptr; }

 protected:
  DeviceMatrix(int rows, int cols) : rows_(rows), cols_(cols) {}

 private:
  const int rows_;
  const int cols_;
};

// Returns the number of rows of some matrices (MatrixView or QuantizedMatrixView) in a stack. Ends the program unless
// their number of columns is a multiple of the number of elements that kernels load at once.
template <typename View>
int StackedRows(const View* matrices, int num_matrices) {
  constexpr int kMultiple = 8;
  const int cols = matrices[0].cols;
  if (cols % kMultiple != 0) Fatal("a matrix of %d columns: they must be a multiple of %d", cols, kMultiple);
  int rows = 0;
  for (int i = 0; i < num_matrices; ++i) rows += matrices[i].rows;
  return rows;
}

// The rows of all stacked matrices, row-major on the device, which must outlive them.
class CudaMatrix : public DeviceMatrix {
 public:
  // Copies the matrices to the device and converts them to `element`. Returns null when there is not enough memory.
  // REQUIRES: the number of columns is a multiple of 8. The worker refuses models with other matrices.
  static std::unique_ptr<CudaMatrix> Pack(Device* device, DataType element, const MatrixView* matrices,
                                          int num_matrices);
  ~CudaMatrix() override { device_->Free(data_); }

  const uint16_t* data() const { return data_; }

 private:
  CudaMatrix(Device* device, uint16_t* data, int rows, int cols)
      : DeviceMatrix(rows, cols), device_(device), data_(data) {}

  Device* const device_;
  uint16_t* const data_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATRIX_H_
