#ifndef QUIRE_WORKER_MODEL_CONFIG_H_
#define QUIRE_WORKER_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "worker/model/quantization_config.h"
#include "worker/model/rope_scaling.h"

namespace quire {

// The shape of a dense decoder, read from config.json in a Hugging Face model directory. The supported architectures
// are LlamaForCausalLM (2 and 3.x), MistralForCausalLM, Qwen2ForCausalLM (2 and 2.5) and Qwen3ForCausalLM. Fields
// describe all differences between them, so that no other code depends on the name of the architecture.
struct ModelConfig {
  std::string architecture;
  std::string torch_dtype;  // As in the file. It determines the default type of K and V. Every tensor has its own type.
  CheckpointQuantization quantization;  // How the checkpoint stores the matrices of the layers.
  int hidden_size;
  int intermediate_size;
  int num_layers;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int vocab_size;
  int max_position_embeddings;
  float rms_norm_eps;
  RopeConfig rope;
  std::vector<int>
      sliding_windows;  // [num_layers], the number of tokens that a query sees, including itself; 0 means all.
  bool qkv_bias;
  bool attention_output_bias;
  bool mlp_bias;
  bool qk_norm;                        // Whether every head of Q and K has an RMS norm before the rotation (Qwen3).
  bool tie_word_embeddings;            // Whether the output matrix is the embedding matrix.
  TokenId bos_token_id;                // -1 if there is none.
  std::vector<TokenId> eos_token_ids;  // Ascending; may be empty.

  int qkv_rows() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// Parses both files. `generation_config_json` may be empty. If it has end tokens, they replace those of config.json, as
// in the `generate` function of transformers. When a field is missing or wrong, the error is one line with the field,
// its value and the allowed values.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json, std::string_view generation_config_json);

// Returns one line with every field. It is logged, and it is part of the fingerprint of the weights.
std::string Summary(const ModelConfig& config);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_CONFIG_H_
