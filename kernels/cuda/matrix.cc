// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/half_float.h"

namespace quire::cuda {
namespace {

float ValueAt(const MatrixView& matrix, size_t i) {
  switch (matrix.type) {
    case DataType::kFloat32:
      return static_cast<const float*>(matrix.data)[i];
    case DataType::kBFloat16:
      return ToFloat(static_cast<const BFloat16*>(matrix.data)[i]);
    case DataType::kFloat16:
      return ToFloat(static_cast<const Float16*>(matrix.data)[i]);
  }
  return 0;
}

// Converts elements [begin, end) of the matrix to `element`.
void Convert(const MatrixView& matrix, DataType element, size_t begin, size_t end, uint16_t* to) {
  if (matrix.type == element) {
    std::memcpy(to, static_cast<const uint16_t*>(matrix.data) + begin, (end - begin) * sizeof(uint16_t));
    return;
  }
  for (size_t i = begin; i < end; ++i) {
    const float value = ValueAt(matrix, i);
    *to++ = element == DataType::kBFloat16 ? ToBFloat16(value).bits : ToFloat16(value).bits;
  }
}

}  // namespace

std::unique_ptr<CudaMatrix> CudaMatrix::Pack(Device* device, DataType element, const MatrixView* matrices,
                                             int num_matrices) {
  constexpr size_t kPieceElements = size_t{1} << 20;
  const int rows = StackedRows(matrices, num_matrices), cols = matrices[0].cols;
  auto* const data = static_cast<uint16_t*>(device->Allocate(size_t(rows) * cols * sizeof(uint16_t)));
  if (data == nullptr) return nullptr;
  std::unique_ptr<CudaMatrix> result(new CudaMatrix(device, data, rows, cols));
  std::vector<uint16_t> piece(kPieceElements);
  uint16_t* to = data;
  for (int i = 0; i < num_matrices; ++i) {
    const size_t size = size_t(matrices[i].rows) * cols;
    for (size_t begin = 0; begin < size; begin += kPieceElements) {
      const size_t end = std::min(size, begin + kPieceElements);
      Convert(matrices[i], element, begin, end, piece.data());
      device->Copy(to, piece.data(), (end - begin) * sizeof(uint16_t));
      device->Synchronize();
      to += end - begin;
    }
  }
  return result;
}

}  // namespace quire::cuda
