// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_EXPERT_STACKS_H_
#define QUIRE_WORKER_MODEL_EXPERT_STACKS_H_

#include <vector>

#include "worker/model/tensor.h"

namespace quire {

// If a checkpoint stores the matrices of all experts of a layer in this tensor, returns a tensor for each matrix, under
// the name that it has in checkpoints that store experts one by one. They point into the bytes of the tensor. Otherwise
// returns none.
//
// The forms are [experts, 2 * width, hidden_size], the gate of an expert over its up, and [experts, hidden_size,
// width].
std::vector<Tensor> MatricesOfExperts(const Tensor& tensor);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_EXPERT_STACKS_H_
