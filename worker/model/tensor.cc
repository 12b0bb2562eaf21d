// SPDX-License-Identifier: Apache-2.0

#include "worker/model/tensor.h"

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

}  // namespace quire
