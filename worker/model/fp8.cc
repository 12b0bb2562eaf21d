// SPDX-License-Identifier: Apache-2.0

#include "worker/model/fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/ceil_div.h"
#include "kernels/fp8.h"
#include "kernels/half_float.h"
#include "kernels/linear.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

const std::array<float, 256>& Table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; ++i) values[i] = Fp8ToFloat(static_cast<uint8_t>(i));
    return values;
  }();
  return table;
}

absl::Status NotFinite(const Tensor& tensor, size_t index) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " is ", Describe(tensor), ", and its element ",
                                                 index, " is infinite or not a number"));
}

// Returns the scales as float32.
absl::StatusOr<std::vector<float>> Fp8Scales(const Tensor& scales) {
  std::vector<float> factors;
  AppendAsFloat(scales.bytes, *WeightType(scales), &factors);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!std::isfinite(factors[i])) return NotFinite(scales, i);
  }
  return factors;
}

}  // namespace

bool IsFp8ScaleShape(const std::vector<int64_t>& shape, int64_t rows, int64_t cols, Fp8Block block) {
  if (block.rows > 0) return shape == std::vector<int64_t>{CeilDiv(rows, block.rows), CeilDiv(cols, block.cols)};
  return shape.empty() || shape == std::vector<int64_t>{1} || shape == std::vector<int64_t>{rows} ||
         shape == std::vector<int64_t>{rows, 1};
}

std::string ExpectedFp8Scales(int64_t rows, int64_t cols, Fp8Block block) {
  const std::string shape = block.rows > 0
                                ? absl::StrCat("[", CeilDiv(rows, block.rows), ", ", CeilDiv(cols, block.cols), "]")
                                : absl::StrCat("[", rows, ", 1], [", rows, "] or [1]");
  return absl::StrCat(shape, " of F32, BF16 or F16");
}

Fp8ScaleShape ScaleShapeOf(Fp8Block block) {
  if (block.cols == 0) return Fp8ScaleShape::kRows;
  const bool has_common_blocks = block.cols == kFp8BlockSide && block.rows % kFp8BlockSide == 0;
  return has_common_blocks ? Fp8ScaleShape::kBlocks128 : Fp8ScaleShape::kOtherBlocks;
}

bool CanKeepFp8(Fp8Block block) {
  return block.cols % kFp8GroupStep == 0;
}

absl::StatusOr<QuantizedMatrix> KeepFp8(const Tensor& matrix, const Tensor& scales, Fp8Block block) {
  const int rows = static_cast<int>(matrix.shape[0]), cols = static_cast<int>(matrix.shape[1]);
  const std::array<float, 256>& table = Table();
  for (size_t i = 0; i < matrix.bytes.size(); ++i) {
    if (std::isnan(table[static_cast<uint8_t>(matrix.bytes[i])])) return NotFinite(matrix, i);
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> factors, Fp8Scales(scales));
  const int row_period = block.rows > 0 ? block.rows : factors.size() == 1 ? rows : 1;
  const int whole = static_cast<int>(CeilDiv(cols, kFp8GroupStep)) * kFp8GroupStep;
  QuantizedMatrix result{.values = {matrix.bytes.begin(), matrix.bytes.end()},
                         .scales = {},
                         .rows = rows,
                         .cols = cols,
                         .group = block.cols > 0 ? std::min(block.cols, whole) : whole,
                         .zeros = {},
                         .order = {},
                         .is_fp8 = true,
                         .has_blocks = block.cols > 0};
  for (int row = 0; row < rows; ++row) {
    const auto from = factors.begin() + int64_t{row / row_period} * result.num_groups();
    result.scales.insert(result.scales.end(), from, from + result.num_groups());
  }
  return result;
}

absl::StatusOr<OwnedTensor> DequantizeFp8(const Tensor& matrix, const Tensor& scales, Fp8Block block) {
  const int64_t rows = matrix.shape[0], cols = matrix.shape[1];
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> factors, Fp8Scales(scales));
  const int64_t row_period = block.rows > 0 ? block.rows : factors.size() == 1 ? rows : 1;
  const int64_t col_period = block.rows > 0 ? block.cols : cols;
  const int64_t factors_per_row = CeilDiv(cols, col_period);
  OwnedTensor result{.tensor = {.name = matrix.name, .dtype = "BF16", .shape = matrix.shape, .bytes = {}}, .bytes = {}};
  const size_t num_bytes = matrix.bytes.size() * sizeof(BFloat16);
  result.bytes = std::make_unique<char[]>(num_bytes);
  result.tensor.bytes = {result.bytes.get(), num_bytes};
  const std::array<float, 256>& table = Table();
  char* to = result.bytes.get();
  for (int64_t row = 0; row < rows; ++row) {
    const auto* from = reinterpret_cast<const uint8_t*>(matrix.bytes.data()) + row * cols;
    const float* const row_factors = &factors[row / row_period * factors_per_row];
    for (int64_t col = 0; col < cols; ++col, to += sizeof(BFloat16)) {
      const BFloat16 value = ToBFloat16(table[from[col]] * row_factors[col / col_period]);
      std::memcpy(to, &value, sizeof(value));
    }
  }
  return result;
}

}  // namespace quire
