#include "worker/model/decoder_family.h"

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr DecoderFamily kFamilies[] = {
    {.architecture = "LlamaForCausalLM",
     .model_type = "llama",
     .qkv_bias_field = "attention_bias",
     .output_bias_field = "attention_bias",
     .mlp_bias_field = "mlp_bias"},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .intermediate_size = 14336,
     .num_kv_heads = 8,
     .max_position_embeddings = 131072,
     .windows = WindowPattern::kUniform,
     .window = 4096},
    {.architecture = "MinistralForCausalLM",
     .model_type = "ministral",
     .intermediate_size = 14336,
     .num_kv_heads = 8,
     .max_position_embeddings = 131072,
     .windows = WindowPattern::kAllButEveryNth,
     .window = 4096},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .intermediate_size = 22016,
     .num_kv_heads = 32,
     .vocab_size = 151936,
     .max_position_embeddings = 32768,
     .bos = -1,
     .eos = -1,
     .qkv_bias = true,
     .windows = WindowPattern::kFromAFirstLayer,
     .has_window_switch = true,
     .window = 4096},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .intermediate_size = 22016,
     .num_kv_heads = 32,
     .head_dim = 128,
     .vocab_size = 151936,
     .max_position_embeddings = 32768,
     .bos = -1,
     .eos = -1,
     .qkv_bias_field = "attention_bias",
     .output_bias_field = "attention_bias",
     .qk_norm = QkNorm::kPerHead,
     .windows = WindowPattern::kFromAFirstLayer,
     .has_window_switch = true,
     .window = 4096},
    {.architecture = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .vocab_size = 50304,
     .rms_norm_eps = 1e-5,
     .bos = -1,
     .eos = 50279,
     .qkv_bias_field = "attention_bias",
     .output_bias_field = "attention_bias",
     .norms = NormPlacement::kAfter,
     .qk_norm = QkNorm::kWhole},
    {.architecture = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .hidden_size = 2048,
     .num_layers = 36,
     .num_heads = 16,
     .num_kv_heads = 4,
     .vocab_size = 128256,
     .max_position_embeddings = 32768,
     .rope_theta = 2000000,
     .ties_embeddings = true,
     .bos = 128000,
     .eos = 128001,
     .qkv_bias_field = "attention_bias",
     .output_bias_field = "attention_bias",
     .mlp_bias_field = "mlp_bias",
     .has_unrotated = true,
     .windows = WindowPattern::kUnrotated,
     .has_window_switch = true},
    {.architecture = "GraniteForCausalLM",
     .model_type = "granite",
     .qkv_bias_field = "attention_bias",
     .output_bias_field = "attention_bias",
     .mlp_bias_field = "mlp_bias",
     .has_multipliers = true},
    {.architecture = "SeedOssForCausalLM",
     .model_type = "seed_oss",
     .intermediate_size = 27648,
     .num_layers = 64,
     .num_heads = 80,
     .num_kv_heads = 8,
     .head_dim = 128,
     .vocab_size = 155136,
     .max_position_embeddings = 524288,
     .bos = 0,
     .qkv_bias_field = "attention_bias",
     .output_bias_field = "attention_out_bias",
     .mlp_bias_field = "mlp_bias",
     .qkv_bias = true},
};

}  // namespace

const DecoderFamily* FindFamilyOf(std::string_view architecture) {
  for (const DecoderFamily& family : kFamilies) {
    if (architecture == family.architecture) return &family;
  }
  return nullptr;
}

const DecoderFamily* FindFamilyOfType(std::string_view model_type) {
  for (const DecoderFamily& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
}

std::string SupportedArchitectures() {
  std::string names;
  for (const DecoderFamily& family : kFamilies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", "[\"", family.architecture, "\"]");
  }
  return absl::StrCat("one of ", names);
}

}  // namespace quire
