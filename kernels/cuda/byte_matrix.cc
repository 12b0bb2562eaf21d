// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/byte_matrix.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/product_splits.h"
#include "kernels/cuda/rounded_product.h"

namespace quire::cuda {

namespace {

// Returns whether the columns make whole blocks of 128, and the scales belong to blocks of 128 rows, of which the last
// one may lack rows.
bool HasBlocksOf128(const QuantizedMatrixView& matrix) {
  if (matrix.group != kScaledColumns || matrix.cols % kScaledColumns != 0) return false;
  const int num_blocks = matrix.cols / kScaledColumns;
  for (int row = 0; row < matrix.rows; ++row) {
    const float* const scales = matrix.scales + int64_t{row} * num_blocks;
    const float* const of_block = matrix.scales + int64_t{row / kScaledRows * kScaledRows} * num_blocks;
    if (!std::equal(scales, scales + num_blocks, of_block)) return false;
  }
  return true;
}

}  // namespace

bool ByteCudaMatrix::CanPack(const QuantizedMatrixView* matrices, int num_matrices) {
  const QuantizedMatrixView* const last = matrices + num_matrices - 1;
  return std::all_of(matrices, matrices + num_matrices, [&](const QuantizedMatrixView& matrix) {
    if (matrix.format != matrices[0].format || matrix.has_blocks != matrices[0].has_blocks) return false;
    if (matrix.format == QuantizedFormat::kInt8) return true;
    if (matrix.format != QuantizedFormat::kFp8 || matrix.order != nullptr) return false;
    if (!matrix.has_blocks) return matrix.group >= matrix.cols;
    return HasBlocksOf128(matrix) && (&matrix == last || matrix.rows % kScaledRows == 0);
  });
}

ByteCudaMatrix::ByteCudaMatrix(Device* device, QuantizedFormat format, bool has_blocks, int rows, int cols)
    : DeviceMatrix(rows, cols),
      device_(device),
      format_(format),
      has_blocks_(has_blocks),
      depth_(CeilDiv(cols, kByteBlockColumns) * kByteBlockColumns),
      padded_rows_(CeilDiv(rows, kByteTileRows) * kByteTileRows),
      scale_stride_(CeilDiv(depth_ / kScaledColumns, kScaleMultiple) * kScaleMultiple) {}

size_t ByteCudaMatrix::num_scales() const {
  return has_blocks_ ? size_t(CeilDiv(rows(), kScaledRows)) * scale_stride_ : size_t(padded_rows_);
}

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
  std::unique_ptr<ByteCudaMatrix> result(
      new ByteCudaMatrix(device, matrices[0].format, matrices[0].has_blocks, rows, matrices[0].cols));
  if (!result->Allocate()) return nullptr;
  result->Upload(matrices, num_matrices);
  return result;
}

std::unique_ptr<ByteCudaMatrix> ByteCudaMatrix::Copy() const {
  std::unique_ptr<ByteCudaMatrix> copy(new ByteCudaMatrix(device_, format_, has_blocks_, rows(), cols()));
  if (!copy->Allocate()) return nullptr;
  device_->Copy(copy->values_, values_, value_bytes());
  device_->Copy(copy->scales_, scales_, scale_bytes());
  return copy;
}

void ByteCudaMatrix::AppendScales(const QuantizedMatrixView& matrix, std::vector<float>* scales) const {
  if (!has_blocks_) {
    scales->insert(scales->end(), matrix.scales, matrix.scales + matrix.rows);
    return;
  }
  const int num_blocks = matrix.cols / kScaledColumns;
  for (int row = 0; row < matrix.rows; row += kScaledRows) {
    const float* const from = matrix.scales + int64_t{row} * num_blocks;
    scales->insert(scales->end(), from, from + num_blocks);
    scales->resize(scales->size() + size_t(scale_stride_ - num_blocks));
  }
}

void ByteCudaMatrix::Upload(const QuantizedMatrixView* matrices, int num_matrices) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  const int rows_at_once = std::max(1, int(kPieceBytes / size_t(depth_)));
  std::vector<int8_t> piece(size_t(rows_at_once) * depth_);  // Its columns behind `cols` stay 0.
  std::vector<float> scales;
  int8_t* to = values_;
  for (int i = 0; i < num_matrices; ++i) {
    const QuantizedMatrixView& matrix = matrices[i];
    AppendScales(matrix, &scales);
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
  scales.resize(num_scales());
  device_->Copy(scales_, scales.data(), scale_bytes());
  device_->Synchronize();
}

}  // namespace quire::cuda
