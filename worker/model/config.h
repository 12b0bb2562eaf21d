// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_CONFIG_H_
#define QUIRE_WORKER_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cache_groups.h"
#include "base/ids.h"
#include "kernels/activate.h"
#include "kernels/experts.h"
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
  bool is_moe = false;  // Whether the layer has experts in place of an MLP.
  // Where K and V of the layer are: in which of the blocks that the cache groups have for a token, counted through all
  // groups, and in which part of them (KvLayout).
  int column = 0;
  int slot = 0;
};

// The experts of the layers that have some. Without such layers, router.num_experts is 0.
struct MoeConfig {
  RouterRule router;
  int width = 0;                    // Rows of the gate of an expert.
  int shared_width = 0;             // The same of the shared expert; 0 if there is none.
  const MoeNames* names = nullptr;  // Of the tensors; static.

  bool has_shared_gate() const { return shared_width > 0 && names->shared_gate != nullptr; }
  bool has_choice_bias() const { return exists() && names->choice_bias != nullptr; }
  bool has_biases() const { return exists() && names->has_biases; }
  // Rows of the router's matrix, which has the gate of the shared expert, too.
  int num_logits() const { return router.num_experts + (has_shared_gate() ? 1 : 0); }
  bool exists() const { return router.num_experts > 0; }
};

// The part of a model that one rank of a group has. The counts are of the whole model; of one rank alone they are not
// set.
struct Shard {
  int rank = 0;
  int size = 1;  // Number of ranks.
  int num_heads = 0;
  int num_kv_heads = 0;
  int intermediate_size = 0;
};

// The shape of a decoder, read from config.json in a Hugging Face model directory. decoder_family.h lists the
// supported architectures. Fields describe all differences between them, so that no other code than the reader of the
// file depends on the name of the architecture.
struct ModelConfig {
  // With several ranks, num_heads, num_kv_heads and intermediate_size are those of this rank (shard.h).
  Shard shard;
  std::string architecture;
  std::string torch_dtype;  // As in the file. Determines the default type of K and V. Every tensor has its own
                            // type.
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
  float rms_norm_eps;  // Also of norms that subtract the mean.
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  // For layers with a window, if it differs.
  std::vector<LayerConfig> layers;        // [num_layers]
  std::vector<CacheGroup> cache_groups = {CacheGroup{}};
  NormPlacement norms = NormPlacement::kBefore;
  LayerNames names;                  // Of the norms in the checkpoint.
  bool norms_add_one = false;        // Whether a norm multiplies by 1 + weight.
  bool norms_subtract_mean = false;  // Whether norms of the residual stream subtract the mean.
  // Whether attention and MLP have the same input, and both outputs are added to the residual stream at once. Then
  // norms is kBefore, and the layers have only the norm of this input.
  bool is_parallel = false;
  bool qkv_bias;
  bool attention_output_bias;
  bool mlp_bias;
  bool has_sinks = false;  // Whether attention has sinks (AttentionArgs).
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  MoeConfig moe;
  std::optional<PlainActivation> plain_activation;  // Of an MLP without a gate. Without it, the MLP has a gate.
  bool fuses_qkv = false;                           // Whether the checkpoint stacks Q, K and V.
  bool fuses_gate_up = false;                       // Whether the checkpoint stacks gate and up.
  // Whether the two numbers of a head that rotate together are neighbours in the checkpoint. Otherwise they are half of
  // the rotary dimensions apart, as operations need them.
  bool rotates_neighbours = false;
  float embedding_scale = 1;           // Multiplies the embeddings.
  float attention_scale;               // Multiplies the scores of attention; usually 1 / sqrt(head_dim).
  float residual_scale = 1;            // Multiplies what attention and MLP add to the residual stream.
  float logit_scale = 1;               // Multiplies the logits.
  float attention_softcap = 0;         // Caps the scores of attention (AttentionArgs); 0 means no cap.
  float logit_softcap = 0;             // Caps the logits after the scale (LinearArgs); 0 means no cap.
  bool tie_word_embeddings;            // Whether the output matrix is the embedding matrix.
  bool denies_own_output = false;      // config.json says so, and the checkpoint has two matrices that differ.
  bool lacks_output = false;           // The checkpoint has no output matrix. The embedding matrix stands for it.
  TokenId bos_token_id;                // -1 if there is none.
  std::vector<TokenId> eos_token_ids;  // Ascending; may be empty.

  // The number of blocks that the cache groups have for a token.
  int num_columns() const;
  // The number of layers that have room in a block.
  int num_slots() const;
  bool has_gate() const { return !plain_activation.has_value(); }
  int qkv_rows() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// Makes all layers one cache group that keeps all tokens. Each has a slot of its own.
void MakeOneCacheGroup(ModelConfig* config);

// Parses both files. `generation_config_json` may be empty. If it has end tokens, they replace the end tokens of
// config.json, as in the `generate` function of transformers. A field that is missing has the default of transformers.
// When a field is wrong, the error is one line with the field, its value and the allowed values. For `is_long` see
// RopeType::kLongRope.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json, std::string_view generation_config_json,
                                             bool is_long = false);

// Returns what the model needs of the operations that not every backend has.
std::vector<OptionalPart> OptionalPartsOf(const ModelConfig& config);

// Returns one line with every field. It is part of the fingerprint of the weights. REQUIRES: the config is of one rank.
std::string Summary(const ModelConfig& config);

// Returns the same for a person: the words for the quantization may change without a change of the fingerprint.
std::string Description(const ModelConfig& config);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_CONFIG_H_
