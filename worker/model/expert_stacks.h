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
// The forms are, with n matrices (gate and up, or down alone):
//   Granite  [experts, n * rows, cols], the gate of an expert over its up.
//   gpt-oss  [experts, cols, n * rows], where the columns of gate and up alternate; biases are [experts, n * rows].
//   gpt-oss in MXFP4  `_blocks`, [experts, n * rows, cols / 32, 16] numbers of 4 bits, of which rows of gate and up
//            alternate, and `_scales`, [experts, n * rows, cols / 32].
// The matrices of gpt-oss have names that no other family uses, because tensors of other families with the same name
// have another form.
std::vector<Tensor> MatricesOfExperts(const Tensor& tensor);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_EXPERT_STACKS_H_
