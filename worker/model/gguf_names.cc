// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_names.h"

#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/field_names.h"
#include "worker/model/gguf_config.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/json_reader.h"

namespace quire {
namespace {

struct FieldName {
  absl::string_view field;
  absl::string_view key;
};

// The keys follow the name of the architecture.
constexpr FieldName kKeys[] = {
    {"head_dim", "attention.key_length"},
    {"hidden_size", "embedding_length"},
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"num_attention_heads", "attention.head_count"},
    {"num_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"num_hidden_layers", "block_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"layer_norm_eps", "attention.layer_norm_epsilon"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"rope_scaling.beta_fast", "rope.scaling.yarn_beta_fast"},
    {"rope_scaling.beta_slow", "rope.scaling.yarn_beta_slow"},
    {"rope_scaling.factor", "rope.scaling.factor"},
    {"rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length"},
    {"rope_scaling.rope_type", "rope.scaling.type"},
    {"rope_theta", "rope.freq_base"},
};

constexpr FieldName kOtherNames[] = {
    {"bos_token_id", "tokenizer.ggml.bos_token_id"},
    {"config.json", "the metadata"},
    {"eos_token_id", "tokenizer.ggml.eos_token_id"},
    {"vocab_size", "the number of rows of token_embd.weight"},
};

std::optional<std::string> NameOf(absl::string_view word, absl::string_view architecture) {
  for (const auto& [field, key] : kKeys) {
    if (word == field) return absl::StrCat(architecture, ".", key);
  }
  for (const auto& [field, name] : kOtherNames) {
    if (word == field) return std::string(name);
  }
  const std::optional<GgufNaming> naming = FindGgufNaming(std::string_view(architecture.data(), architecture.size()));
  if (!naming.has_value()) return std::nullopt;
  return GgufTensorName(std::string_view(word.data(), word.size()), *naming);
}

}  // namespace

absl::Status InGguf(absl::string_view path, absl::string_view architecture, const absl::Status& error) {
  absl::string_view message = error.message();
  absl::ConsumePrefix(&message, absl::StrCat(kConfigFile, ": "));
  const std::string renamed = RenameFields(message, [&](absl::string_view word) { return NameOf(word, architecture); });
  return absl::Status(error.code(), absl::StrCat(path, ": ", renamed));
}

}  // namespace quire
