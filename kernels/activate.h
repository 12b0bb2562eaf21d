// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_ACTIVATE_H_
#define QUIRE_KERNELS_ACTIVATE_H_

#include <cstdint>

#include "kernels/types.h"

namespace quire {

// The activation of an MLP without a gate.
//   kSquaredRelu  max(a, 0)^2
//   kXielu        positive * a^2 + beta * a for a > 0, else negative * (exp(min(a, limit)) - 1 - a) + beta * a (Huang
//                 and Schlag, "Deriving Activation Functions Using Integration", arXiv 2411.13010).
enum class PlainActivation : uint8_t { kSquaredRelu, kXielu };

// The numbers of kXielu, which each layer has learned.
struct XieluShape {
  float positive = 0;
  float negative = 0;
  float beta = 0.5f;
  float limit = -1e-6f;
};

// y = activation(x) over rows of `dim`.
struct ActivateArgs {
  const void* x;  // [num_rows, dim] activations.
  void* y;        // [num_rows, dim] in y_type.
  int num_rows;
  int dim;
  DataType y_type;  // Either the type of activations or the input type of a matrix.
  PlainActivation activation;
  XieluShape xielu = {};
};

}  // namespace quire

#endif  // QUIRE_KERNELS_ACTIVATE_H_
