// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_NORM_H_
#define QUIRE_KERNELS_NORM_H_

#include <cstdint>

#include "kernels/types.h"

namespace quire {

// y = x / sqrt(mean(x^2) + epsilon) * weight (+ residual) over rows of `dim`; y may be x when it is float32, and it may
// be the residual. The norm of a layer (Ba et al., "Layer Normalization", 2016) subtracts the mean of x from x first.
struct RmsNormArgs {
  const void* x;        // [num_rows, x_stride]
  const float* weight;  // [dim]
  void* y;              // [num_rows, y_stride]
  int num_rows;
  int dim;
  float epsilon;
  DataType y_type = DataType::kFloat32;       // Either float32 or the input type of a matrix.
  InputLayout y_layout = InputLayout::kRows;  // REQUIRES: kRows if there is a residual or a y_stride.
  // [num_rows, dim] activations, or null. With a residual, y has the type of activations. REQUIRES:
  // Has(OptionalPart::kNormedOutputs), unless it is null.
  const void* residual = nullptr;
  // Distances in elements from one row to the next; 0 means dim. REQUIRES: Has(OptionalPart::kNormedProjections),
  // unless both are 0.
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  bool subtracts_mean = false;  // REQUIRES: Has(OptionalPart::kLayerNorm), unless it is false.
  // If y_cols is above 0, only the columns [y_first, y_first + y_cols) are stored, at the beginning of each row of y.
  // REQUIRES: then Has(OptionalPart::kRanks), y has the type of activations, and there is no residual.
  int y_first = 0;
  int y_cols = 0;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_NORM_H_
