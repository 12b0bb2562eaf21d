// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/byte_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/product_splits.h"
#include "kernels/cuda/rounded_product.h"

namespace quire::cuda {

bool ByteCudaMatrix::CanPack(const QuantizedMatrixView* matrices, int num_matrices) {
  return std::all_of(matrices, matrices + num_matrices, [&](const QuantizedMatrixView& matrix) {
    if (matrix.format != matrices[0].format) return false;
    return matrix.format == QuantizedFormat::kInt8 || (matrix.format == QuantizedFormat::kFp8 && !matrix.has_blocks &&
                                                       matrix.group >= matrix.cols && matrix.order == nullptr);
  });
}

ByteCudaMatrix::ByteCudaMatrix(Device* device, QuantizedFormat format, int rows, int cols)
    : DeviceMatrix(rows, cols),
      device_(device),
      format_(format),
      depth_(int(CeilDivide(cols, kByteBlockColumns)) * kByteBlockColumns),
      padded_rows_(int(CeilDivide(rows, kByteTileRows)) * kByteTileRows) {}

ByteCudaMatrix::~ByteCudaMatrix() {
  for (void* const memory : {static_cast<void*>(values_), static_cast<void*>(scales_)}) {
    if (memory != nullptr) device_->Free(memory);
  }
}

bool ByteCudaMatrix::Allocate() {
  values_ = static_cast<int8_t*>(device_->Allocate(value_bytes()));
  scales_ = static_cast<float*>(device_->Allocate(scale_bytes()));
  return values_ != nullptr && scales_ != nullptr;
}

std::unique_ptr<ByteCudaMatrix> ByteCudaMatrix::Pack(Device* device, const QuantizedMatrixView* matrices,
                                                     int num_matrices) {
  const int rows = StackedRows(matrices, num_matrices);
  std::unique_ptr<ByteCudaMatrix> result(new ByteCudaMatrix(device, matrices[0].format, rows, matrices[0].cols));
  if (!result->Allocate()) return nullptr;
  result->Upload(matrices, num_matrices);
  return result;
}

std::unique_ptr<ByteCudaMatrix> ByteCudaMatrix::Copy() const {
  std::unique_ptr<ByteCudaMatrix> copy(new ByteCudaMatrix(device_, format_, rows(), cols()));
  if (!copy->Allocate()) return nullptr;
  device_->Copy(copy->values_, values_, value_bytes());
  device_->Copy(copy->scales_, scales_, scale_bytes());
  return copy;
}

void ByteCudaMatrix::Upload(const QuantizedMatrixView* matrices, int num_matrices) {
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
