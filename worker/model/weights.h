// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_WEIGHTS_H_
#define QUIRE_WORKER_MODEL_WEIGHTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fingerprint.h"
#include "kernels/activate.h"
#include "kernels/backend.h"
#include "worker/model/backend_buffer.h"
#include "worker/model/checkpoint.h"
#include "worker/model/config.h"
#include "worker/model/load_progress.h"
#include "worker/model/quantize.h"

namespace quire {

// The weights of one decoder layer. Matrices have the precision of their file or are quantized, and vectors are
// float32. A field that the model lacks is null.
struct LayerWeights {
  BackendBuffer input_norm;           // [hidden_size], of the input of attention.
  std::unique_ptr<PackedMatrix> qkv;  // [(num_heads + 2 * num_kv_heads) * head_dim, hidden_size], Q over K over V
  BackendBuffer qkv_bias;             // [(num_heads + 2 * num_kv_heads) * head_dim]
  BackendBuffer q_norm;               // [head_dim], or [num_heads * head_dim] with QkNorm::kWhole.
  BackendBuffer k_norm;               // [head_dim], or [num_kv_heads * head_dim] with QkNorm::kWhole.
  BackendBuffer sinks;                // [num_heads], of attention.
  std::unique_ptr<PackedMatrix> attention_output;  // [hidden_size, num_heads * head_dim]
  BackendBuffer attention_output_bias;             // [hidden_size]
  BackendBuffer attention_output_norm;             // [hidden_size], of what attention adds to the residual stream.
  BackendBuffer mlp_norm;                          // [hidden_size], of the input of the MLP.
  // Made by PackGated from two [intermediate_size, hidden_size]; without a gate, [intermediate_size, hidden_size].
  std::unique_ptr<PackedMatrix> gate_up;
  BackendBuffer gate_up_bias;          // [2 * intermediate_size]; without a gate, [intermediate_size].
  XieluShape xielu;                    // Of an MLP with this activation.
  std::unique_ptr<PackedMatrix> down;  // [hidden_size, intermediate_size]
  BackendBuffer down_bias;             // [hidden_size]
  BackendBuffer mlp_output_norm;       // [hidden_size], of what the MLP adds to the residual stream.

  // Whether this rank has rows of these matrices, all columns of them, in place of columns of all rows. Then the ranks
  // exchange inputs and outputs in place of sums.
  bool attention_output_has_rows = false;
  bool down_has_rows = false;

  // Of a layer with experts. Its gate_up and down are those of the shared expert.
  std::unique_ptr<PackedMatrix> router;                        // [num_experts, hidden_size] float32, over the shared
                                                               // expert's gate if there is one.
  BackendBuffer router_bias;                                   // [num_experts]
  BackendBuffer choice_bias;                                   // [num_experts]
  std::vector<std::unique_ptr<PackedMatrix>> expert_matrices;  // What `experts` points to.
  std::vector<BackendBuffer> expert_biases;                    // The same for biases.
  std::vector<Expert> experts;                                 // [num_experts], null for experts of other ranks.
};

// All weights of a model, packed for one backend. The backend must outlive them.
struct ModelWeights {
  std::unique_ptr<PackedMatrix> embedding;  // [vocab_size, hidden_size]
  std::vector<LayerWeights> layers;
  BackendBuffer final_norm;  // [hidden_size]
  // [vocab_size, hidden_size], or the rows of OwnVocabulary. It is null if `embedding` is used instead. If it is
  // rounded, or a rank has a part of it, it is not null.
  std::unique_ptr<PackedMatrix> lm_head;
  // [rotary_dim / 2], one for each LayerRope. That of layers without rotation has zeros, and that of layers with a
  // window is null when there is no other than the main one.
  BackendBuffer inv_freq;
  BackendBuffer window_inv_freq;
  BackendBuffer no_inv_freq;
  WeightRounding rounding;  // With `layers` as they are in memory, also if the checkpoint stores them so.
  // 32 hexadecimal digits for the config and all tensors that are used. It is empty on a rank, because it is made from
  // the digests of all ranks.
  std::string fingerprint;
  TensorDigests digests;

  const PackedMatrix& output() const { return lm_head != nullptr ? *lm_head : *embedding; }
};

// Loads every tensor that `config` needs from the checkpoint. When a tensor is missing or has a wrong shape or type,
// the error is one line with its name and the expected shape. A tensor with an infinite number or a NaN is refused too.
// If the checkpoint has other tensors, their number and the first name are logged. `progress` is told of every tensor
// that was read. Matrices are rounded after they have been read; the backend must be able to multiply such matrices. An
// error says so when the backend finds that it multiplies them wrongly.
absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint, Backend* backend,
                                         LoadProgress* progress, const WeightRounding& rounding = {});

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_WEIGHTS_H_
