// SPDX-License-Identifier: Apache-2.0

#include "worker/model/tensor.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace quire {

std::string Describe(const Tensor& tensor) {
  return absl::StrCat(tensor.dtype, " [", absl::StrJoin(tensor.shape, ", "), "]");
}

std::optional<DataType> WeightType(const Tensor& tensor) {
  if (tensor.dtype == "F32") return DataType::kFloat32;
  if (tensor.dtype == "BF16") return DataType::kBFloat16;
  if (tensor.dtype == "F16") return DataType::kFloat16;
  return std::nullopt;
}

OwnedTensor Gathered(const Tensor& tensor) {
  const size_t element = SizeOf(*WeightType(tensor));
  const int64_t rows = tensor.shape[0], cols = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
  const size_t size = static_cast<size_t>(rows * cols) * element;
  OwnedTensor result{.tensor = tensor, .bytes = std::make_unique_for_overwrite<char[]>(size)};
  char* to = result.bytes.get();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col, to += element) {
      std::memcpy(to, &tensor.bytes[static_cast<size_t>(tensor.places->Of(row, col)) * element], element);
    }
  }
  result.tensor.places.reset();
  result.tensor.bytes = {result.bytes.get(), size};
  return result;
}

}  // namespace quire
