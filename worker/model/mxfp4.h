// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_MXFP4_H_
#define QUIRE_WORKER_MODEL_MXFP4_H_

#include "absl/status/statusor.h"
#include "worker/model/tensor.h"

namespace quire {

// Numbers of 4 bits (E2M1) with a scale, a power of two, for each group of 32 columns (OCP Microscaling Formats
// Specification 1.0). gpt-oss stores numbers and scales in two tensors. In a byte, the lower 4 bits are the first
// number.
inline constexpr char kMxfp4Type[] = "MXFP4";
inline constexpr int kMxfp4Group = 32;
inline constexpr int kMxfp4GroupBytes = 16;
// The end of the name of the scales, behind the name of the matrix. They are U8 [rows, cols / 32], and stand for
// 2^(scale - 127). 255 is no number.
inline constexpr char kMxfp4ScalesSuffix[] = "_scales";

// Returns a copy of the matrix in bfloat16, which holds all these numbers exactly, except those below 2^-126. Returns
// an error if a scale is no number. REQUIRES: the matrix has the type kMxfp4Type, and the shapes fit each other.
absl::StatusOr<OwnedTensor> DequantizeMxfp4(const Tensor& matrix, const Tensor& scales);

// Returns a copy of the matrix in blocks of the same type (kernels/blocks.h), as GGUF files have them. REQUIRES: as
// above.
OwnedTensor Mxfp4InBlocks(const Tensor& matrix, const Tensor& scales);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_MXFP4_H_
