#ifndef QUIRE_KERNELS_LINEAR_H_
#define QUIRE_KERNELS_LINEAR_H_

#include "kernels/types.h"

namespace quire {

// A weight matrix in the form the backend multiplies fastest, made once at load. Opaque.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
};

// A source matrix for packing, row-major [rows, cols] in the precision of its file. Borrowed for the call.
struct MatrixView {
  const void* data;
  int rows;
  int cols;
  DataType type;
};

// y[num_tokens, rows] = x[num_tokens, cols] * w^T (+ bias) (+ residual); residual may be y itself.
struct LinearArgs {
  const void* x;
  const PackedMatrix* w;
  const float* bias;     // [rows] or null.
  const void* residual;  // [num_tokens, rows] or null.
  void* y;
  int num_tokens;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_LINEAR_H_
