#include "worker/model/config.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "kernels/kv_layout.h"
#include "worker/model/quantization_config.h"

namespace quire {
namespace {

using nlohmann::json;

// These limits are far above every published model. They prevent that a broken file makes us allocate too much memory.
constexpr int64_t kMaxHiddenSize = 65536;
constexpr int64_t kMaxIntermediateSize = 1 << 20;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxVocabSize = 1 << 22;
constexpr int64_t kMaxPositions = 1 << 24;
constexpr const char* kFile = "config.json";

enum class Family { kLlama, kMistral, kQwen2, kQwen3 };

absl::StatusOr<Family> ReadFamily(const json& root, const JsonFields& fields, std::string* architecture) {
  constexpr const char* kAllowed =
      "[\"LlamaForCausalLM\"], [\"MistralForCausalLM\"], [\"Qwen2ForCausalLM\"] or [\"Qwen3ForCausalLM\"]";
  const auto found = root.find("architectures");
  if (found == root.end() || !found->is_array() || found->size() != 1 || !found->front().is_string()) {
    return fields.Bad("architectures", kAllowed);
  }
  *architecture = found->front().get<std::string>();
  if (*architecture == "LlamaForCausalLM") return Family::kLlama;
  if (*architecture == "MistralForCausalLM") return Family::kMistral;
  if (*architecture == "Qwen2ForCausalLM") return Family::kQwen2;
  if (*architecture == "Qwen3ForCausalLM") return Family::kQwen3;
  return fields.Bad("architectures", kAllowed);
}

absl::Status ReadInt(const JsonFields& fields, const char* name, int64_t max, int* result,
                     std::optional<int64_t> fallback = {}) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t value, fields.Int(name, 1, max, fallback));
  *result = static_cast<int>(value);
  return absl::OkStatus();
}

absl::Status ReadHeads(const JsonFields& fields, Family family, ModelConfig* config) {
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "num_attention_heads", kMaxHeads, &config->num_heads));
  std::optional<int64_t> kv_heads;  // Only early Llama files lack the field.
  if (family == Family::kLlama) kv_heads = config->num_heads;
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "num_key_value_heads", kMaxHeads, &config->num_kv_heads, kv_heads));
  if (config->num_heads % config->num_kv_heads != 0) {
    return fields.Bad("num_key_value_heads", absl::StrCat("a divisor of num_attention_heads, ", config->num_heads));
  }
  std::optional<int64_t> head_dim;
  if (family == Family::kQwen3) {
    head_dim = 128;  // The default of transformers for this architecture, which is not derived from hidden_size.
  } else if (config->hidden_size % config->num_heads == 0) {
    head_dim = config->hidden_size / config->num_heads;
  }
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "head_dim", kMaxHeadDim, &config->head_dim, head_dim));
  if (config->head_dim % 2 != 0 || config->head_dim > kMaxHeadDim) {
    return absl::InvalidArgumentError(absl::StrCat(kFile, ": head_dim (or hidden_size / num_attention_heads) is ",
                                                   config->head_dim, ", must be even and at most ", kMaxHeadDim));
  }
  return absl::OkStatus();
}

absl::Status ReadBiases(const JsonFields& fields, Family family, ModelConfig* config) {
  config->qk_norm = family == Family::kQwen3;
  config->qkv_bias = family == Family::kQwen2;
  config->attention_output_bias = false;
  config->mlp_bias = false;
  if (family == Family::kLlama || family == Family::kQwen3) {
    QUIRE_ASSIGN_OR_RETURN(config->qkv_bias, fields.Bool("attention_bias", false));
    config->attention_output_bias = config->qkv_bias;
  }
  if (family == Family::kLlama) {
    QUIRE_ASSIGN_OR_RETURN(config->mlp_bias, fields.Bool("mlp_bias", false));
  }
  return absl::OkStatus();
}

// Reads the sliding window of every layer. Mistral has one window for all layers. Qwen has windows only if
// use_sliding_window is set; then layer_types names the layers with a window, or, without that field, the layers from
// max_window_layers on have one. Llama has none.
absl::Status ReadWindows(const json& root, const JsonFields& fields, Family family, ModelConfig* config) {
  config->sliding_windows.assign(config->num_layers, 0);
  if (family == Family::kLlama) return absl::OkStatus();
  bool use_window = true;
  if (family != Family::kMistral) {
    QUIRE_ASSIGN_OR_RETURN(use_window, fields.Bool("use_sliding_window", false));
  }
  const auto given = root.find("sliding_window");
  if (!use_window || (given != root.end() && given->is_null())) return absl::OkStatus();
  int window;
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "sliding_window", kMaxPositions, &window, 4096));
  const auto types = root.find("layer_types");
  if (family == Family::kMistral) {
    config->sliding_windows.assign(config->num_layers, window);
  } else if (types == root.end() || types->is_null()) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t first, fields.Int("max_window_layers", 0, kMaxLayers, 28));
    for (int i = static_cast<int>(first); i < config->num_layers; ++i) config->sliding_windows[i] = window;
  } else {
    const std::string allowed =
        absl::StrCat("an array of ", config->num_layers, " times full_attention or sliding_attention");
    if (!types->is_array() || types->size() != config->sliding_windows.size()) {
      return fields.Bad("layer_types", allowed);
    }
    for (int i = 0; i < config->num_layers; ++i) {
      const json& type = (*types)[i];
      if (type == "sliding_attention") {
        config->sliding_windows[i] = window;
      } else if (type != "full_attention") {
        return fields.Bad("layer_types", allowed);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSpecialTokens(const JsonFields& fields, std::string_view generation_config_json, ModelConfig* config) {
  const int64_t max_token = config->vocab_size - 1;
  QUIRE_ASSIGN_OR_RETURN(const int64_t bos, fields.Int("bos_token_id", 0, max_token, -1));
  config->bos_token_id = static_cast<TokenId>(bos);
  QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> eos, fields.Ints("eos_token_id", 0, max_token));
  if (!generation_config_json.empty()) {
    constexpr const char* kGeneration = "generation_config.json";
    QUIRE_ASSIGN_OR_RETURN(const json root, ParseModelJson(generation_config_json, kGeneration));
    if (!root.is_object()) return absl::InvalidArgumentError("generation_config.json: must be an object");
    const JsonFields generation(root, kGeneration);
    if (generation.Has("eos_token_id")) {
      QUIRE_ASSIGN_OR_RETURN(eos, generation.Ints("eos_token_id", 0, max_token));
    }
  }
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  config->eos_token_ids.assign(eos.begin(), eos.end());
  return absl::OkStatus();
}

// Refuses features that would change the computation and that no supported architecture uses.
absl::Status RefuseUnknown(const JsonFields& fields) {
  QUIRE_ASSIGN_OR_RETURN(const std::string activation, fields.String("hidden_act", "silu"));
  if (activation != "silu") return fields.Bad("hidden_act", "\"silu\"");
  return absl::OkStatus();
}

// Formats runs of equal numbers: "2x0,1x4096" for 0, 0, 4096.
std::string Runs(const std::vector<int>& values) {
  std::string text;
  for (size_t first = 0; first < values.size();) {
    size_t end = first;
    while (end < values.size() && values[end] == values[first]) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", end - first, "x", values[first]);
    first = end;
  }
  return text;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json, std::string_view generation_config_json) {
  QUIRE_ASSIGN_OR_RETURN(const json root, ParseModelJson(config_json, kFile));
  if (!root.is_object()) return absl::InvalidArgumentError("config.json: must be an object");
  const JsonFields fields(root, kFile);
  ModelConfig config;
  QUIRE_ASSIGN_OR_RETURN(const Family family, ReadFamily(root, fields, &config.architecture));
  QUIRE_RETURN_IF_ERROR(RefuseUnknown(fields));
  QUIRE_ASSIGN_OR_RETURN(config.quantization, ReadQuantizationConfig(fields));
  QUIRE_ASSIGN_OR_RETURN(config.torch_dtype, fields.String(fields.Has("dtype") ? "dtype" : "torch_dtype", ""));
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "hidden_size", kMaxHiddenSize, &config.hidden_size));
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "intermediate_size", kMaxIntermediateSize, &config.intermediate_size));
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "num_hidden_layers", kMaxLayers, &config.num_layers));
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "vocab_size", kMaxVocabSize, &config.vocab_size));
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "max_position_embeddings", kMaxPositions, &config.max_position_embeddings));
  QUIRE_ASSIGN_OR_RETURN(const double epsilon, fields.Number("rms_norm_eps", 1e-12, 1e-1));
  config.rms_norm_eps = static_cast<float>(epsilon);
  QUIRE_RETURN_IF_ERROR(ReadHeads(fields, family, &config));
  QUIRE_ASSIGN_OR_RETURN(config.rope, ReadRopeConfig(fields, config.max_position_embeddings));
  QUIRE_RETURN_IF_ERROR(ReadBiases(fields, family, &config));
  QUIRE_RETURN_IF_ERROR(ReadWindows(root, fields, family, &config));
  QUIRE_ASSIGN_OR_RETURN(config.tie_word_embeddings, fields.Bool("tie_word_embeddings", false));
  QUIRE_RETURN_IF_ERROR(ReadSpecialTokens(fields, generation_config_json, &config));
  return config;
}

std::string Summary(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  // Without quantization, nothing is added, so that fingerprints stay what they were.
  const std::string quantization = config.quantization.format == CheckpointFormat::kPlain
                                       ? ""
                                       : absl::StrCat(" quantization ", Summary(config.quantization));
  return absl::StrCat(config.architecture, " hidden ", config.hidden_size, " ffn ", config.intermediate_size,
                      " layers ", config.num_layers, " heads ", config.num_heads, "/", config.num_kv_heads,
                      " head_dim ", config.head_dim, " vocab ", config.vocab_size, " context ",
                      config.max_position_embeddings, " eps ", config.rms_norm_eps, " rope ", Name(rope.type),
                      " theta ", rope.theta, " factor ", rope.factor, " original ",
                      rope.original_max_position_embeddings, " freq_factors ", rope.low_freq_factor, "/",
                      rope.high_freq_factor, " betas ", rope.beta_fast, "/", rope.beta_slow, " attention_factor ",
                      rope.attention_factor, " truncate ", rope.truncate, " windows ", Runs(config.sliding_windows),
                      " qkv_bias ", config.qkv_bias, " o_bias ", config.attention_output_bias, " mlp_bias ",
                      config.mlp_bias, " qk_norm ", config.qk_norm, " tied ", config.tie_word_embeddings, " bos ",
                      config.bos_token_id, " eos ", absl::StrJoin(config.eos_token_ids, ","), quantization);
}

}  // namespace quire
