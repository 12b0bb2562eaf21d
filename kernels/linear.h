#ifndef QUIRE_KERNELS_LINEAR_H_
#define QUIRE_KERNELS_LINEAR_H_

#include <cstdint>

#include "kernels/types.h"

namespace quire {

// A weight matrix in the form that the backend multiplies fastest. It is made once at load and is opaque to callers.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
};

// A source matrix for packing: row-major [rows, cols] in the precision of its file. Borrowed for the call.
struct MatrixView {
  const void* data;
  int rows;
  int cols;
  DataType type;
};

// A source matrix of whole numbers with scales: the weight of row n and column k is values[n][k] * scales[n]. Borrowed
// for the call.
struct QuantizedMatrixView {
  const int8_t* values;  // [rows, cols]
  const float* scales;   // [rows], finite.
  int rows;
  int cols;  // At most kMaxQuantizedCols.
};
// The exact sum of so many products of two numbers of 8 bits fits into 32 bits.
constexpr int kMaxQuantizedCols = 1 << 17;

// y[num_tokens, rows] = x[num_tokens, cols] * w^T (+ bias) (+ residual); residual may be y itself.
struct LinearArgs {
  const void* x;          // [num_tokens, cols] in the type that Backend::InputType(*w) returns.
  const PackedMatrix* w;  // A matrix that Backend::Pack has made.
  const float* bias;      // [rows] or null.
  const void* residual;   // [num_tokens, rows] activations, or null.
  void* y;                // [num_tokens, rows] in y_type.
  int num_tokens;
  DataType y_type = DataType::kFloat32;  // Either float32 or the type of activations.
};

// y[num_tokens, dim] = silu(x * gate^T (+ bias)) * (x * up^T (+ bias)), where silu(a) = a / (1 + exp(-a)).
// This is the first half of a gated MLP (Shazeer, "GLU Variants Improve Transformer", 2020).
struct GatedLinearArgs {
  const void* x;          // [num_tokens, cols] in the type that Backend::InputType(*w) returns.
  const PackedMatrix* w;  // A matrix that Backend::PackGated has made; gate and up are [dim, cols].
  const float* bias;      // [2 * dim], the bias of the gate and then of up; or null.
  void* y;                // [num_tokens, dim]
  DataType y_type;        // Either float32 or the input type of a matrix.
  int num_tokens;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_LINEAR_H_
