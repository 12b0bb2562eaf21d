// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_LAYER_STACKS_H_
#define QUIRE_WORKER_MODEL_LAYER_STACKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "worker/model/checkpoint.h"
#include "worker/model/config.h"
#include "worker/model/quantization_config.h"

namespace quire {

// The order in which a checkpoint has the rows of Q or K. Operations need the two rows of a rotated pair half of the
// rotary dimensions apart: (0, 1, ..., half, half + 1, ...). Some checkpoints have them side by side: (0, half, 1,
// half + 1, ...). The dimensions of a head that do not rotate follow.
struct RowOrder {
  int head_dim = 0;  // 0: the rows are as operations need them.
  int rotary_dim = 0;

  // Returns the place in the checkpoint of a row of the operations.
  int64_t InFile(int64_t row) const;
};

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
  RowOrder order = {};
  // If the tensor has more columns than the part: how many, and the first one of the part.
  int tensor_cols = 0;
  int first_col = 0;

  int whole_rows() const { return tensor_rows > 0 ? tensor_rows : rows; }
  // The columns of the tensor, if the part has `cols`.
  int whole_cols(int cols) const { return tensor_cols > 0 ? tensor_cols : cols; }
  // Returns the number of slices of a part with `cols` columns: its share of those of the whole matrix.
  int NumSlices(int cols, int group) const;
};

// The matrices of a layer in stacks. The matrices of a stack have the same columns and are multiplied together, so they
// are held in one form.
struct LayerStacks {
  std::vector<MatrixPart> qkv;  // Q, K and V, or one matrix that has them all.
  std::vector<MatrixPart> attention_output;
  // Of the MLP, or in a layer with experts of the shared expert. Empty if there is none.
  std::vector<MatrixPart> gate_up;  // Two matrices, or the two halves of one tensor; without a gate, up alone.
  std::vector<MatrixPart> down;
};

// With several ranks, the parts of this rank. Of the last matrices of attention and of the MLP they are columns.
LayerStacks StacksOfLayer(const ModelConfig& config, int layer);

// The same for an expert of a layer with experts.
struct ExpertStacks {
  std::vector<MatrixPart> gate_up;
  std::vector<MatrixPart> down;
};

// The router, which has a row for each expert, and the gate of the shared expert if there is one. They are multiplied
// together and never quantized.
std::vector<MatrixPart> RouterParts(const ModelConfig& config, int layer);

ExpertStacks StacksOfExpert(const ModelConfig& config, int layer, int expert);
// The biases of these matrices. REQUIRES: config.moe.has_biases().
ExpertStacks BiasesOfExpert(const ModelConfig& config, int layer, int expert);
// Returns how the names of the tensors of an expert begin.
std::string ExpertPrefix(const ModelConfig& config, int layer, int expert);
// Returns the order of the rows of Q and K.
RowOrder RotatedRows(const ModelConfig& config);

// Returns whether the checkpoint stores the matrix `weight` in the form that `quantization` names. `weight` is the name
// of the matrix when it is not quantized. FP8 counts only if it is kept.
bool IsStoredQuantized(const Checkpoint& checkpoint, const CheckpointQuantization& quantization,
                       const std::string& weight);

// Returns whether a stack consists of matrices in blocks (kernels/blocks.h) that are packed as they are stored. Those
// of a gated stack have one type.
bool IsInBlocks(const Checkpoint& checkpoint, const std::vector<MatrixPart>& stack, bool is_gated);

// Counts the matrices in blocks, of all ranks together.
StoredBlocks CountBlocks(const ModelConfig& config, const Checkpoint& checkpoint);

// Counts the stacks that are not quantized when the checkpoint is read as `quantization` says.
PlainStacks CountPlainStacks(const ModelConfig& config, const Checkpoint& checkpoint,
                             const CheckpointQuantization& quantization);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_LAYER_STACKS_H_
