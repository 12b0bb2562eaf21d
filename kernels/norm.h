#ifndef QUIRE_KERNELS_NORM_H_
#define QUIRE_KERNELS_NORM_H_

#include "kernels/types.h"

namespace quire {

// y = x / sqrt(mean(x^2) + epsilon) * weight over rows of `dim`; y may be x when it is float32.
struct RmsNormArgs {
  const void* x;        // [num_rows, dim]
  const float* weight;  // [dim]
  void* y;              // [num_rows, dim]
  int num_rows;
  int dim;
  float epsilon;
  DataType y_type = DataType::kFloat32;  // Either float32 or the input type of a matrix.
};

}  // namespace quire

#endif  // QUIRE_KERNELS_NORM_H_
