// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_MOE_FAMILY_H_
#define QUIRE_WORKER_MODEL_MOE_FAMILY_H_

#include "kernels/experts.h"

namespace quire {

// Largest number of experts of a layer, far above every published model.
inline constexpr int kMaxMoeExperts = 1 << 12;

// Which layers of a family have experts. The others have an MLP.
//   kAll              All layers.
//   kSparseSteps      Every decoder_sparse_step-th one, except those in mlp_only_layers.
//   kFromAFirstLayer  The layers from first_k_dense_replace on.
enum class MoeLayers { kAll, kSparseSteps, kFromAFirstLayer };

// Names of gate and up where one tensor has both, with alternating rows (expert_stacks.h).
inline constexpr char kAlternateGate[] = "gate_up_proj.gate";
inline constexpr char kAlternateUp[] = "gate_up_proj.up";

// The names of tensors of a layer with experts, behind the prefix of the layer.
struct MoeNames {
  const char* router = "mlp.gate.weight";
  const char* router_bias = nullptr;     // Added to the logits; null if there is none.
  const char* choice_bias = nullptr;     // Of scores for the choice; null if there is none.
  const char* experts = "mlp.experts.";  // The number of the expert, a dot, one of the next names and ".weight" follow.
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  bool has_biases = false;            // Whether the matrices have biases, whose names end with ".bias".
  const char* shared = nullptr;       // Prefix of the shared expert, whose matrices have the same three names.
  const char* shared_gate = nullptr;  // Its gate; null if there is none.
};

// What Hugging Face transformers assumes of the experts of a family where config.json has no value, and which parts
// are different. A null name of a field means that the family does not have the field.
struct MoeFamily {
  int num_experts;
  int top_k;
  // Rows of the gate of an expert: the name of the field and its default. Without a name it is intermediate_size.
  const char* width_field = nullptr;
  int width = 0;
  RouterScore score = RouterScore::kSoftmax;
  // Whether the weights of the chosen experts are normalized: the name of the field, and the value without it.
  const char* normalizes_field = nullptr;
  bool normalizes = false;
  float added_to_sum = 0;   // RouterRule::added_to_sum
  bool has_groups = false;  // Whether n_group and topk_group are read.
  bool has_scale = false;   // Whether routed_scaling_factor is read.
  // The shared expert, an MLP that all tokens use: the field with its width and the default, or the field with the
  // number of experts that it is as wide as.
  const char* shared_width_field = nullptr;
  int shared_width = 0;
  const char* shared_count_field = nullptr;
  int shared_count = 0;
  MoeLayers layers = MoeLayers::kAll;
  int first_layer = 0;  // The default of kFromAFirstLayer.
  MoeNames names = {};
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_MOE_FAMILY_H_
