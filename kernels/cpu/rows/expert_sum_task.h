// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ROWS_EXPERT_SUM_TASK_H_
#define QUIRE_KERNELS_CPU_ROWS_EXPERT_SUM_TASK_H_

#include <cstdint>

#include "kernels/experts.h"

namespace quire::cpu {

// Adds the outputs of a token's experts as kernels/experts.h says, and after that shared_weight * shared and the
// residual.
struct ExpertSumTask {
  int count;                 // Experts of the token.
  const float* const* rows;  // [count], each [dim]: the outputs of the experts by rising id.
  const float* weights;      // [count]
  const uint8_t* ranges;     // [count], ExpertRange of each.
  const float* shared;       // [dim], or null.
  float shared_weight;
  const float* residual;  // [dim], or null.
  float* y;               // [dim]; may be `shared` or the residual.
  int dim;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ROWS_EXPERT_SUM_TASK_H_
