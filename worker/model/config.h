#ifndef QUIRE_WORKER_MODEL_CONFIG_H_
#define QUIRE_WORKER_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "worker/model/rope_scaling.h"

namespace quire {

// The shape of a dense decoder, read from the config.json of a Hugging Face model directory: LlamaForCausalLM (2 and
// 3.x), MistralForCausalLM, Qwen2ForCausalLM (2 and 2.5) and Qwen3ForCausalLM. What distinguishes the families is
// spelled out in the fields, so that nobody asks for the family's name later.
struct ModelConfig {
  std::string architecture;
  std::string torch_dtype;  // As written. Chooses the type of K and V; each tensor knows its own.
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
  std::vector<int> sliding_windows;  // [num_layers], tokens that a query sees, itself included; 0: all.
  bool qkv_bias;
  bool attention_output_bias;
  bool mlp_bias;
  bool qk_norm;                        // RMS norm of every head of Q and K before the rotation (Qwen3).
  bool tie_word_embeddings;            // The output matrix is the embedding matrix.
  TokenId bos_token_id;                // -1: none.
  std::vector<TokenId> eos_token_ids;  // Ascending; may be empty.

  int qkv_rows() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// `generation_config_json` may be empty; where it names end tokens they replace those of config.json, as in
// transformers' generate. A missing or odd field is one line that names the field, the value and what is allowed.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json, std::string_view generation_config_json);

// One line with every field: for logs, and as part of the weights' fingerprint.
std::string Summary(const ModelConfig& config);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_CONFIG_H_
