#ifndef QUIRE_KERNELS_CUDA_MATRIX_H_
#define QUIRE_KERNELS_CUDA_MATRIX_H_

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.h"
#include "kernels/linear.h"

namespace quire::cuda {

// The rows of all stacked matrices, row-major on the device, which must outlive them. Used by one thread.
class CudaMatrix : public PackedMatrix {
 public:
  // Copies the matrices to the device and converts them to `element`. Returns null when there is not enough memory.
  // REQUIRES: the number of columns is a multiple of 8. The worker refuses models with other matrices.
  static std::unique_ptr<CudaMatrix> Pack(Device* device, DataType element, const MatrixView* matrices,
                                          int num_matrices);
  ~CudaMatrix() override { device_->Free(data_); }

  const uint16_t* data() const { return data_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }

 private:
  CudaMatrix(Device* device, uint16_t* data, int rows, int cols)
      : device_(device), data_(data), rows_(rows), cols_(cols) {}

  Device* const device_;
  uint16_t* const data_;
  const int rows_;
  const int cols_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MATRIX_H_
