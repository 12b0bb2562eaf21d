// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_FP8_H_
#define QUIRE_WORKER_MODEL_FP8_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/operations.h"
#include "worker/model/quantize.h"
#include "worker/model/tensor.h"

namespace quire {

// The type of matrices of FP8 in checkpoints. kernels/fp8.h describes the numbers.
inline constexpr char kFp8Type[] = "F8_E4M3";

// Which numbers of a matrix share a scale.
struct Fp8Block {
  int rows = 0;  // 0: the matrix has one scale, or one for each row.
  int cols = 0;  // 0 if and only if rows is 0.

  bool operator==(const Fp8Block&) const = default;
};

// Returns whether a matrix [rows, cols] may have scales of this shape. Blocks of 128 x 128 of a matrix [300, 128] have
// scales [3, 1], and the last block is short.
bool IsFp8ScaleShape(const std::vector<int64_t>& shape, int64_t rows, int64_t cols, Fp8Block block);
// The same in words, for errors.
std::string ExpectedFp8Scales(int64_t rows, int64_t cols, Fp8Block block);

Fp8ScaleShape ScaleShapeOf(Fp8Block block);

// Returns whether a matrix with such blocks can be multiplied without conversion: KeepFp8 needs whole groups of
// columns.
bool CanKeepFp8(Fp8Block block);

// Makes a matrix for products by FP8. A number or a scale that is not finite is an error. REQUIRES: CanKeepFp8(block),
// and what DequantizeFp8 requires.
absl::StatusOr<QuantizedMatrix> KeepFp8(const Tensor& matrix, const Tensor& scales, Fp8Block block);

// Multiplies the numbers by their scales in float32 and rounds the products to bfloat16. A scale that is not finite is
// an error. Numbers that are NaNs stay NaNs. REQUIRES: `matrix` is of kFp8Type with two dimensions; WeightType(scales)
// has a value; IsFp8ScaleShape of the shape of `scales`.
absl::StatusOr<OwnedTensor> DequantizeFp8(const Tensor& matrix, const Tensor& scales, Fp8Block block);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_FP8_H_
