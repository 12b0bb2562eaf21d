// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_CONFIG_H_
#define QUIRE_WORKER_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kernels/linear.h"
#include "kernels/optional_part.h"
#include "worker/model/decoder_family.h"
#include "worker/model/quantization_config.h"
#include "worker/model/rope_scaling.h"

namespace quire {

// The rotary embedding of a layer: none, ModelConfig::rope, or ModelConfig::window_rope.
enum class LayerRope { kNone, kMain, kWindow };

struct LayerConfig {
  int window = 0;  // The number of tokens that a query sees, including itself; 0 means all.
  LayerRope rope = LayerRope::kMain;
};

// The shape of a dense decoder, read from config.json in a Hugging Face model directory. decoder_family.h lists the
// supported architectures. Fields describe all differences between them, so that no other code than the reader of the
// file depends on the name of the architecture.
struct ModelConfig {
  std::string architecture;
  std::string torch_dtype;  // The file has it like this. It determines the default type of K and V. Every tensor has
                            // its own type.
  CheckpointQuantization quantization;  // How the checkpoint stores the matrices of the layers.
  int hidden_size;
  int intermediate_size;
  int num_layers;
  int num_heads;
  int num_kv_heads;
  // Which of both numbers the file lacks, and what they count as: "num_key_value_heads is missing, so it counts as 32".
  // Empty if it has both.
  std::string assumed_heads;
  int head_dim;
  int vocab_size;
  int max_position_embeddings;
  float rms_norm_eps;
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  // For layers with a window, if it differs.
  std::vector<LayerConfig> layers;        // [num_layers]
  NormPlacement norms = NormPlacement::kBefore;
  bool norms_add_one = false;  // Whether a norm multiplies by 1 + weight.
  bool qkv_bias;
  bool attention_output_bias;
  bool mlp_bias;
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  bool has_fused_matrices = false;     // Whether the checkpoint stacks Q, K and V, and gate and up.
  float embedding_scale = 1;           // Multiplies the embeddings.
  float attention_scale;               // Multiplies the scores of attention; usually 1 / sqrt(head_dim).
  float residual_scale = 1;            // Multiplies what attention and MLP add to the residual stream.
  float logit_scale = 1;               // Multiplies the logits.
  float attention_softcap = 0;         // Caps the scores of attention (AttentionArgs); 0 means no cap.
  float logit_softcap = 0;             // Caps the logits after the scale (LinearArgs); 0 means no cap.
  bool tie_word_embeddings;            // Whether the output matrix is the embedding matrix.
  bool denies_own_output = false;      // config.json says so, and the checkpoint has two matrices that differ.
  TokenId bos_token_id;                // -1 if there is none.
  std::vector<TokenId> eos_token_ids;  // Ascending; may be empty.

  int qkv_rows() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// Parses both files. `generation_config_json` may be empty. If it has end tokens, they replace the end tokens of
// config.json, as in the `generate` function of transformers. A field that is missing has the default of transformers.
// When a field is wrong, the error is one line with the field, its value and the allowed values. For `is_long` see
// RopeType::kLongRope.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json, std::string_view generation_config_json,
                                             bool is_long = false);

// Returns what the model needs of the operations that not every backend has.
std::vector<OptionalPart> OptionalPartsOf(const ModelConfig& config);

// Returns one line with every field. It is part of the fingerprint of the weights.
std::string Summary(const ModelConfig& config);

// Returns the same for a person: the words for the quantization may change without a change of the fingerprint.
std::string Description(const ModelConfig& config);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_CONFIG_H_
