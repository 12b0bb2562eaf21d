// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/int8_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/int8_product.h"
#include "kernels/cuda/product_splits.h"

namespace quire::cuda {

Int8CudaMatrix::Int8CudaMatrix(Device* device, int rows, int cols)
    : DeviceMatrix(rows, cols),
      device_(device),
      depth_(int(CeilDivide(cols, kInt8BlockColumns)) * kInt8BlockColumns),
      padded_rows_(int(CeilDivide(rows, kInt8TileRows)) * kInt8TileRows) {}

Int8CudaMatrix::~Int8CudaMatrix() {
  for (void* const memory : {static_cast<void*>(values_), static_cast<void*>(scales_)}) {
    if (memory != nullptr) device_->Free(memory);
  }
}

bool Int8CudaMatrix::Allocate() {
  values_ = static_cast<int8_t*>(device_->Allocate(value_bytes()));
  scales_ = static_cast<float*>(device_->Allocate(scale_bytes()));
  return values_ != nullptr && scales_ != nullptr;
}

std::unique_ptr<Int8CudaMatrix> Int8CudaMatrix::Pack(Device* device, const QuantizedMatrixView* matrices,
                                                     int num_matrices) {
  const int rows = StackedRows(matrices, num_matrices);
  std::unique_ptr<Int8CudaMatrix> result(new Int8CudaMatrix(device, rows, matrices[0].cols));
  if (!result->Allocate()) return nullptr;
  result->Upload(matrices, num_matrices);
  return result;
}

std::unique_ptr<Int8CudaMatrix> Int8CudaMatrix::Copy() const {
  std::unique_ptr<Int8CudaMatrix> copy(new Int8CudaMatrix(device_, rows(), cols()));
  if (!copy->Allocate()) return nullptr;
  device_->Copy(copy->values_, values_, value_bytes());
  device_->Copy(copy->scales_, scales_, scale_bytes());
  return copy;
}

void Int8CudaMatrix::Upload(const QuantizedMatrixView* matrices, int num_matrices) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  const int rows_at_once = std::max(1, int(kPieceBytes / size_t(depth_)));
  std::vector<int8_t> piece(size_t(rows_at_once) * depth_);  // Its columns behind `cols` stay 0.
  std::vector<float> scales(padded_rows_);
  int8_t* to = values_;
  float* scale = scales.data();
  for (int i = 0; i < num_matrices; ++i) {
    const QuantizedMatrixView& matrix = matrices[i];
    scale = std::copy_n(matrix.scales, matrix.rows, scale);
    for (int first = 0; first < matrix.rows; first += rows_at_once) {
      const int count = std::min(rows_at_once, matrix.rows - first);
      for (int row = 0; row < count; ++row) {
        std::memcpy(&piece[size_t(row) * depth_], matrix.values + int64_t{first + row} * cols(), size_t(cols()));
      }
      device_->Copy(to, piece.data(), size_t(count) * depth_);
      device_->Synchronize();
      to += int64_t{count} * depth_;
    }
  }
  device_->Copy(scales_, scales.data(), scale_bytes());
  device_->Synchronize();
}

}  // namespace quire::cuda
