// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_LAYER_STACKS_H_
#define QUIRE_WORKER_MODEL_LAYER_STACKS_H_

#include <string>
#include <vector>

#include "kernels/linear.h"
#include "worker/model/checkpoint.h"
#include "worker/model/config.h"
#include "worker/model/quantization_config.h"

namespace quire {

// One matrix of a stack, for example Q, K or V of the fused projection.
struct MatrixPart {
  std::string name;
  int rows;
  // If the tensor has more rows than the part: how many, and the first one of the part.
  int tensor_rows = 0;
  int first_row = 0;
  // In the last matrix of attention or of the MLP: the columns that stay in one slice of the sum (NumSlices). Otherwise
  // 0, and then there is one slice.
  int slice_unit = 0;

  int NumSlices(int cols, int group) const { return slice_unit == 0 ? 1 : quire::NumSlices(cols, slice_unit, group); }
};

// The matrices of a layer in stacks. The matrices of a stack have the same columns and are multiplied together, so they
// are held in one form.
struct LayerStacks {
  std::vector<MatrixPart> qkv;  // Q, K and V, or one matrix that has them all.
  std::vector<MatrixPart> attention_output;
  std::vector<MatrixPart> gate_up;  // Two matrices, or the two halves of one tensor.
  std::vector<MatrixPart> down;
};

LayerStacks StacksOfLayer(const ModelConfig& config, int layer);

// Returns whether the checkpoint stores the matrix `weight` in the form that `quantization` names. `weight` is the name
// of the matrix when it is not quantized. FP8 counts only if it is kept.
bool IsStoredQuantized(const Checkpoint& checkpoint, const CheckpointQuantization& quantization,
                       const std::string& weight);

// Counts the stacks that are not quantized when the checkpoint is read as `quantization` says.
PlainStacks CountPlainStacks(const ModelConfig& config, const Checkpoint& checkpoint,
                             const CheckpointQuantization& quantization);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_LAYER_STACKS_H_
