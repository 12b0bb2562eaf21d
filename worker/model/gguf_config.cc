// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status.h"
#include "kernels/kv_layout.h"
#include "nlohmann/json.hpp"
#include "worker/model/gguf_fields.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/gguf_types.h"
#include "worker/model/json_reader.h"
#include "worker/model/rope_scaling.h"
#include "worker/model/tensor_values.h"
#include "worker/model/unsupported_model.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBlocks = 1024;
constexpr int64_t kMaxHeadCount = 1024;
constexpr int64_t kMaxExpertCount = 4096;
constexpr int64_t kMaxSize = 1 << 22;
constexpr int64_t kMaxContext = 1 << 24;
constexpr int64_t kControlToken = 3;  // The type of such tokens in tokenizer.ggml.token_type.
constexpr const char* kArchitecture = "general.architecture";

struct Architecture {
  std::string_view gguf;
  const char* hugging_face;
  bool permutes_rows = false;     // GgufShape::permutes_rows
  bool has_rope_factors = false;  // GgufShape::has_rope_factors
  bool has_windows = false;       // Whether attention.sliding_window has an effect.
  std::string_view mlp_norm = "ffn_norm.weight";
  // The architecture of files with windows, if it is another one.
  const char* with_windows = nullptr;
  // The model with this number of layers divides scores by sqrt(hidden_size / num_heads); all others by sqrt(head_dim).
  int layers_of_narrow_scores = 0;
};
constexpr Architecture kArchitectures[] = {
    {.gguf = "llama", .hugging_face = "LlamaForCausalLM", .permutes_rows = true, .has_rope_factors = true},
    {.gguf = "qwen2", .hugging_face = "Qwen2ForCausalLM"},
    {.gguf = "qwen3", .hugging_face = "Qwen3ForCausalLM"},
    {.gguf = "qwen3moe", .hugging_face = "Qwen3MoeForCausalLM"},
    {.gguf = "gemma", .hugging_face = "GemmaForCausalLM"},
    {.gguf = "gemma2", .hugging_face = "Gemma2ForCausalLM", .has_windows = true, .layers_of_narrow_scores = 46},
    {.gguf = "gemma3", .hugging_face = "Gemma3ForCausalLM", .has_windows = true, .layers_of_narrow_scores = 62},
    {.gguf = "phi3", .hugging_face = "Phi3ForCausalLM", .has_windows = true},
    {.gguf = "mistral3", .hugging_face = "Ministral3ForCausalLM", .permutes_rows = true, .has_rope_factors = true},
    {.gguf = "olmo2", .hugging_face = "Olmo2ForCausalLM", .has_windows = true, .with_windows = "Olmo3ForCausalLM"},
    {.gguf = "smollm3", .hugging_face = "SmolLM3ForCausalLM", .permutes_rows = true},
    {.gguf = "granite", .hugging_face = "GraniteForCausalLM", .permutes_rows = true, .has_rope_factors = true},
    {.gguf = "seed_oss", .hugging_face = "SeedOssForCausalLM", .mlp_norm = "post_attention_norm.weight"},
    {.gguf = "exaone4", .hugging_face = "Exaone4ForCausalLM", .has_rope_factors = true, .has_windows = true},
    {.gguf = "arcee", .hugging_face = "ArceeForCausalLM", .permutes_rows = true, .has_rope_factors = true},
    {.gguf = "ernie4_5", .hugging_face = "Ernie4_5ForCausalLM"},
    {.gguf = "hunyuan-dense", .hugging_face = "HunYuanDenseV1ForCausalLM"},
    {.gguf = "chatglm", .hugging_face = "GlmForCausalLM"},
    {.gguf = "glm4", .hugging_face = "Glm4ForCausalLM"},
    {.gguf = "command-r", .hugging_face = "CohereForCausalLM"},
    {.gguf = "cohere2", .hugging_face = "Cohere2ForCausalLM", .has_windows = true},
    {.gguf = "gpt-oss",
     .hugging_face = "GptOssForCausalLM",
     .has_windows = true,
     .mlp_norm = "post_attention_norm.weight"},
};

const Architecture* FindArchitecture(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                         [&](const Architecture& one) { return one.gguf == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

// Keys after the name of the architecture that are read, or that only describe the file.
constexpr std::string_view kKnownKeys[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "tensor_data_layout",
    "attention.causal",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
};

// The same for an architecture with experts.
constexpr std::string_view kExpertKeys[] = {"expert_count", "expert_used_count", "expert_feed_forward_length"};
// Further keys, which only some families have.
struct FamilyKey {
  std::string_view name;
  bool (*is_read)(const Architecture& architecture, const DecoderFamily& family);
};
bool HasWindows(const Architecture& architecture, const DecoderFamily& /*family*/) {
  return architecture.has_windows;
}
bool HasSoftcaps(const Architecture& /*architecture*/, const DecoderFamily& family) {
  return family.logit_softcap_field != nullptr;
}
bool HasMultipliers(const Architecture& /*architecture*/, const DecoderFamily& family) {
  return family.has_multipliers;
}
bool HasLogitScale(const Architecture& /*architecture*/, const DecoderFamily& family) {
  return family.has_multipliers || family.logit_scale_field != nullptr;
}
bool HasQueryGrowth(const Architecture& /*architecture*/, const DecoderFamily& family) {
  return family.has_query_growth;
}
bool HasLayerNorm(const Architecture& /*architecture*/, const DecoderFamily& family) {
  return family.norms_subtract_mean;
}
constexpr FamilyKey kFamilyKeys[] = {
    {"attention.layer_norm_epsilon", HasLayerNorm},
    {"attention.sliding_window", HasWindows},
    {"attention.sliding_window_pattern", HasWindows},
    {"rope.freq_base_swa", HasWindows},
    {"attn_logit_softcapping", HasSoftcaps},
    {"final_logit_softcapping", HasSoftcaps},
    {"embedding_scale", HasMultipliers},
    {"residual_scale", HasMultipliers},
    {"attention.scale", HasMultipliers},
    {"logit_scale", HasLogitScale},
    {"attention.temperature_scale", HasQueryGrowth},
    {"rope.scaling.yarn_log_multiplier", HasQueryGrowth},
};

// Control tokens with these texts end an answer, as in llama.cpp.
constexpr std::string_view kEndTexts[] = {
    "<|return|>",    "<|call|>", "<|eot_id|>",      "<|eom_id|>",
    "<|im_end|>",    "<|end|>",  "<|end_of_text|>", "<|endoftext|>",
    "<end_of_turn>", "</s>",     "<EOT>",           "_<EOT>",
    "[EOT]",         "[EOS]",    "<eos>",           "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

// An answer of gpt-oss has several messages. In a vocabulary with both of these texts, the other one ends a message
// only.
constexpr std::string_view kHarmonyEnds[] = {"<|return|>", "<|call|>"};
constexpr std::string_view kEndOfMessage = "<|end|>";

const Tensor* FindTensor(const GgufContents& contents, std::string_view name) {
  const auto found = std::find_if(contents.tensors.begin(), contents.tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  return found == contents.tensors.end() ? nullptr : &*found;
}

bool HasTensorEndingIn(const GgufContents& contents, std::initializer_list<std::string_view> ends) {
  return std::any_of(contents.tensors.begin(), contents.tensors.end(), [&](const Tensor& tensor) {
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) {
      return absl::EndsWith(tensor.name, absl::string_view(end.data(), end.size()));
    });
  });
}

// The name that config.json has for the type of a tensor after it was read.
const char* NameOfType(const Tensor& tensor) {
  switch (WeightType(tensor).value_or(kDequantizedType)) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      break;
  }
  return "bfloat16";
}

// Writes config.json field by field.
class ConfigWriter {
 public:
  ConfigWriter(const GgufContents& contents, GgufShape shape)
      : contents_(contents),
        fields_(contents),
        shape_(std::move(shape)),
        architecture_(*FindArchitecture(shape_.architecture)),
        family_(*shape_.naming.family) {}

  absl::StatusOr<std::string> Write();

 private:
  std::string Key(std::string_view name) const {
    return absl::StrCat(shape_.architecture, ".", absl::string_view(name.data(), name.size()));
  }
  absl::Status RefuseUnknownKeys() const;
  absl::Status WriteSizes();
  void WriteBiases();
  absl::Status WriteHeads();
  absl::Status WriteScales();
  absl::Status WriteWindows();
  absl::Status WriteRope();
  absl::Status WriteYarn(json* scaling);
  absl::Status WriteLongRope(json* scaling);
  // Sets the scaling that the factors belong to, if they are not 1.
  absl::Status WriteRopeFactors(json* scaling);
  absl::StatusOr<std::vector<float>> RopeFactors(const char* name) const;
  absl::Status WriteTokens();
  // Returns an error unless the key is missing or is this number.
  absl::Status Expect(std::string_view name, double number) const;

  const GgufContents& contents_;
  const GgufFields fields_;
  const GgufShape shape_;
  const Architecture& architecture_;
  const DecoderFamily& family_;
  int64_t head_dim_ = 0;
  int64_t rotary_dim_ = 0;
  int64_t vocab_size_ = 0;
  double theta_ = 0;
  json config_;
};

absl::Status ConfigWriter::Expect(std::string_view name, double number) const {
  QUIRE_ASSIGN_OR_RETURN(const double value, fields_.Number(Key(name), -1e30, 1e30, number));
  return value == number ? absl::OkStatus() : fields_.Bad(Key(name), absl::StrCat(number));
}

absl::Status ConfigWriter::RefuseUnknownKeys() const {
  const std::string prefix = shape_.architecture + ".";
  for (const auto& [key, value] : contents_.metadata) {
    if (!absl::StartsWith(key, prefix)) continue;
    const std::string_view name = std::string_view(key).substr(prefix.size());
    if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), name) != std::end(kKnownKeys)) continue;
    const bool is_of_experts = std::find(std::begin(kExpertKeys), std::end(kExpertKeys), name) != std::end(kExpertKeys);
    if (is_of_experts && shape_.num_experts > 0) continue;
    if (std::any_of(std::begin(kFamilyKeys), std::end(kFamilyKeys),
                    [&](const FamilyKey& one) { return one.name == name && one.is_read(architecture_, family_); })) {
      continue;
    }
    if (!fields_.IsNeutral(key)) return fields_.Bad(key, absl::StrCat("absent: ", RefusalOfGgufKey(name)));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields_.String("general.type", "model"));
  if (type != "model") return fields_.Bad("general.type", "\"model\"");
  constexpr const char* kSuppressed = "tokenizer.ggml.suppress_tokens";
  if (fields_.Has(kSuppressed) && !fields_.IsNeutral(kSuppressed)) {
    return fields_.Bad(kSuppressed, "absent: it is not supported");
  }
  QUIRE_ASSIGN_OR_RETURN(const bool is_causal, fields_.Bool(Key("attention.causal"), true));
  return is_causal ? absl::OkStatus() : fields_.Bad(Key("attention.causal"), "true");
}

absl::Status ConfigWriter::WriteSizes() {
  const Tensor* embedding = FindTensor(contents_, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor token_embd.weight is ", embedding == nullptr ? "missing" : Describe(*embedding), ", must be a matrix"));
  }
  vocab_size_ = embedding->shape[0];
  config_["vocab_size"] = vocab_size_;
  // This decides the type of K and V.
  const bool has_experts = shape_.num_experts > 0;
  const Tensor* matrix = FindTensor(contents_, has_experts ? "blk.0.ffn_down_exps.weight" : "blk.0.ffn_down.weight");
  config_["dtype"] = NameOfType(matrix == nullptr ? *embedding : *matrix);
  config_["tie_word_embeddings"] = FindTensor(contents_, "output.weight") == nullptr;
  config_["num_hidden_layers"] = shape_.num_layers;
  QUIRE_ASSIGN_OR_RETURN(config_["hidden_size"], fields_.Int(Key("embedding_length"), 1, kMaxSize));
  QUIRE_ASSIGN_OR_RETURN(config_["intermediate_size"], fields_.Int(Key("feed_forward_length"), 1, kMaxSize));
  QUIRE_ASSIGN_OR_RETURN(config_["max_position_embeddings"], fields_.Int(Key("context_length"), 1, kMaxContext));
  const char* const epsilon =
      family_.norms_subtract_mean ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  QUIRE_ASSIGN_OR_RETURN(config_[family_.epsilon_field], fields_.Number(Key(epsilon), 1e-12, 1e-1));
  if (has_experts) {
    config_["num_experts"] = shape_.num_experts;
    QUIRE_ASSIGN_OR_RETURN(config_["num_experts_per_tok"],
                           fields_.Int(Key("expert_used_count"), 1, shape_.num_experts));
    const char* const width = family_.moe->width_field;
    QUIRE_ASSIGN_OR_RETURN(config_[width == nullptr ? "intermediate_size" : width],
                           fields_.Int(Key("expert_feed_forward_length"), 1, kMaxSize));
    config_["norm_topk_prob"] = true;  // As in llama.cpp.
  }
  WriteBiases();
  return absl::OkStatus();
}

// One field may be about several biases.
void ConfigWriter::WriteBiases() {
  const auto write = [&](const char* field, std::initializer_list<std::string_view> ends) {
    if (field == nullptr) return;
    config_[field] = config_.value(field, false) || HasTensorEndingIn(contents_, ends);
  };
  write(family_.qkv_bias_field, {".attn_q.bias", ".attn_k.bias", ".attn_v.bias"});
  write(family_.output_bias_field, {".attn_output.bias"});
  write(family_.mlp_bias_field, {".ffn_gate.bias", ".ffn_up.bias", ".ffn_down.bias"});
}

absl::Status ConfigWriter::WriteHeads() {
  config_["num_attention_heads"] = shape_.num_heads;
  config_["num_key_value_heads"] = shape_.num_kv_heads;
  const int64_t hidden_size = config_["hidden_size"].get<int64_t>();
  QUIRE_ASSIGN_OR_RETURN(head_dim_,
                         fields_.Int(Key("attention.key_length"), 2, kMaxHeadDim, hidden_size / shape_.num_heads));
  if (head_dim_ < 2 || head_dim_ > kMaxHeadDim) {
    return absl::InvalidArgumentError(absl::StrCat(Key("attention.key_length"), " is missing, and ",
                                                   Key("embedding_length"), " / ", Key("attention.head_count"), " is ",
                                                   head_dim_, ", it must be in 2 .. ", kMaxHeadDim));
  }
  config_["head_dim"] = head_dim_;
  QUIRE_RETURN_IF_ERROR(Expect("attention.value_length", static_cast<double>(head_dim_)));
  rotary_dim_ = head_dim_;
  if (!family_.rotates_parts) return Expect("rope.dimension_count", static_cast<double>(head_dim_));
  QUIRE_ASSIGN_OR_RETURN(rotary_dim_, fields_.Int(Key("rope.dimension_count"), 2, head_dim_, head_dim_));
  // The sum keeps rounding from making it one less.
  config_["partial_rotary_factor"] =
      std::min(1.0, (static_cast<double>(rotary_dim_) + 0.25) / static_cast<double>(head_dim_));
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteScales() {
  constexpr double kMax = 1e6;
  const auto write = [&](const char* field, std::string_view key, double fallback) -> absl::Status {
    QUIRE_ASSIGN_OR_RETURN(config_[field], fields_.Number(Key(key), 1 / kMax, kMax, fallback));
    return absl::OkStatus();
  };
  const double head_scale = 1 / std::sqrt(static_cast<double>(head_dim_));
  if (family_.query_scalar > 0) {
    const bool is_narrow = architecture_.layers_of_narrow_scores == shape_.num_layers;
    config_["query_pre_attn_scalar"] = is_narrow ? config_["hidden_size"].get<int64_t>() / shape_.num_heads : head_dim_;
  }
  for (const auto& [field, key] : {std::pair(family_.attention_softcap_field, "attn_logit_softcapping"),
                                   {family_.logit_softcap_field, "final_logit_softcapping"}}) {
    if (field == nullptr || !fields_.Has(Key(key)) || fields_.IsNeutral(Key(key))) continue;
    QUIRE_RETURN_IF_ERROR(write(field, key, 1));
  }
  if (family_.logit_scale_field != nullptr) QUIRE_RETURN_IF_ERROR(write(family_.logit_scale_field, "logit_scale", 1));
  if (!family_.has_multipliers) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(write("embedding_multiplier", "embedding_scale", 1));
  QUIRE_RETURN_IF_ERROR(write("residual_multiplier", "residual_scale", 1));
  QUIRE_RETURN_IF_ERROR(write("logits_scaling", "logit_scale", 1));
  QUIRE_RETURN_IF_ERROR(write("attention_multiplier", "attention.scale", head_scale));
  // llama.cpp takes it for the question whether the model rotates Q and K at all.
  const std::string rotates = Key("rope.scaling.finetuned");
  QUIRE_ASSIGN_OR_RETURN(const bool is_rotated, fields_.Bool(rotates, true));
  return is_rotated ? absl::OkStatus() : fields_.Bad(rotates, "true: layers without rotation are not supported");
}

// Without windows, all layers have full attention. The pattern is a flag for each layer, or a period.
absl::Status ConfigWriter::WriteWindows() {
  if (!architecture_.has_windows) return absl::OkStatus();
  const std::string window_key = Key("attention.sliding_window"), pattern_key = Key("attention.sliding_window_pattern");
  const bool has_window = fields_.Has(window_key) && !fields_.IsNeutral(window_key);
  config_["sliding_window"] = nullptr;
  if (has_window) {
    QUIRE_ASSIGN_OR_RETURN(config_["sliding_window"], fields_.Int(window_key, 1, kMaxContext));
  } else if (family_.names.placement() == NormPlacement::kBoth && family_.window_rope_theta == 0) {
    return fields_.Bad(window_key, absl::StrCat("an integer in 1 .. ", kMaxContext));
  }
  if (family_.windows != WindowPattern::kAllButEveryNth) return absl::OkStatus();
  const size_t num_layers = static_cast<size_t>(shape_.num_layers);
  QUIRE_ASSIGN_OR_RETURN(std::vector<bool> slides, fields_.Flags(pattern_key, num_layers));
  if (slides.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t period, fields_.Int(pattern_key, 1, kMaxBlocks, family_.window_period));
    for (size_t i = 0; i < num_layers; ++i) slides.push_back((i + 1) % period != 0);
  }
  config_["layer_types"] = json::array();
  for (const bool slides_here : slides) {
    config_["layer_types"].push_back(has_window && slides_here ? "sliding_attention" : "full_attention");
  }
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteYarn(json* scaling) {
  QUIRE_ASSIGN_OR_RETURN((*scaling)["original_max_position_embeddings"],
                         fields_.Int(Key("rope.scaling.original_context_length"), 1, kMaxContext,
                                     config_["max_position_embeddings"].get<int64_t>()));
  QUIRE_ASSIGN_OR_RETURN((*scaling)["beta_fast"], fields_.Number(Key("rope.scaling.yarn_beta_fast"), 1e-3, 1e6, 32.0));
  QUIRE_ASSIGN_OR_RETURN((*scaling)["beta_slow"], fields_.Number(Key("rope.scaling.yarn_beta_slow"), 1e-3, 1e6, 1.0));
  // No key says whether the ends of the ramp are rounded.
  if (family_.rope != nullptr) (*scaling)["truncate"] = json::parse(family_.rope).value("truncate", true);
  if (family_.has_query_growth) {
    QUIRE_ASSIGN_OR_RETURN((*scaling)["llama_4_scaling_beta"],
                           fields_.Number(Key("attention.temperature_scale"), 0, 100, 0.0));
    QUIRE_ASSIGN_OR_RETURN((*scaling)["mscale_all_dim"],
                           fields_.Number(Key("rope.scaling.yarn_log_multiplier"), 0, 1e3, 0.0));
    (*scaling)["mscale"] = 1.0;
  }
  for (const char* name : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"})
    QUIRE_RETURN_IF_ERROR(Expect(name, 1.0));
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteLongRope(json* scaling) {
  QUIRE_ASSIGN_OR_RETURN(config_["original_max_position_embeddings"],
                         fields_.Int(Key("rope.scaling.original_context_length"), 1, kMaxContext));
  *scaling = {{"rope_type", "longrope"}};
  QUIRE_ASSIGN_OR_RETURN((*scaling)["attention_factor"],
                         fields_.Number(Key("rope.scaling.attn_factor"), 1e-3, 1e3, 1.0));
  QUIRE_ASSIGN_OR_RETURN((*scaling)["long_factor"], RopeFactors(kGgufLongFactors));
  QUIRE_ASSIGN_OR_RETURN((*scaling)["short_factor"], RopeFactors(kGgufShortFactors));
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteRope() {
  constexpr double kMaxFactor = 1024;
  QUIRE_ASSIGN_OR_RETURN(theta_, fields_.Number(Key("rope.freq_base"), 1.5, 1e12, 10000.0));
  const std::string type_key = Key("rope.scaling.type");
  const bool has_long_factors = family_.original_positions > 0 && FindTensor(contents_, kGgufLongFactors) != nullptr;
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields_.String(type_key, has_long_factors ? "longrope" : "linear"));
  if (type != "none" && type != "linear" && type != "yarn" && !(type == "longrope" && has_long_factors)) {
    return fields_.Bad(type_key, "none, linear or yarn");
  }
  const char* factor_name = fields_.Has(Key("rope.scaling.factor")) ? "rope.scaling.factor" : "rope.scale_linear";
  QUIRE_ASSIGN_OR_RETURN(double factor, fields_.Number(Key(factor_name), 0.0, kMaxFactor, 1.0));
  if (factor == 0) factor = 1;  // llama.cpp does the same.
  json scaling = json::object();
  if (type == "yarn" || (type == "linear" && factor != 1)) scaling = {{"rope_type", type}, {"factor", factor}};
  if (type == "yarn") {
    QUIRE_RETURN_IF_ERROR(WriteYarn(&scaling));
  } else if (family_.has_query_growth) {
    QUIRE_RETURN_IF_ERROR(Expect("attention.temperature_scale", 0));  // Its span is that of YaRN.
  }
  if (type == "longrope") QUIRE_RETURN_IF_ERROR(WriteLongRope(&scaling));
  if (shape_.has_rope_factors && FindTensor(contents_, kGgufRopeFactors) != nullptr) {
    if (!scaling.empty())
      return fields_.Bad(type_key, absl::StrCat("none in a file with the tensor ", kGgufRopeFactors));
    QUIRE_RETURN_IF_ERROR(WriteRopeFactors(&scaling));
  }
  if (family_.window_rope_theta == 0) {
    QUIRE_RETURN_IF_ERROR(Expect("rope.freq_base_swa", theta_));
    config_["rope_theta"] = theta_;
    // The empty object is not the default of the family.
    config_[scaling.empty() ? "rope_parameters" : "rope_scaling"] = std::move(scaling);
    return absl::OkStatus();
  }
  // llama.cpp gives OLMo 3 one base for all layers, and Gemma 3 a base of its own to layers with a window.
  const double window_theta = family_.window_theta_field == nullptr ? theta_ : family_.window_rope_theta;
  scaling["rope_theta"] = theta_;
  json window = {{"rope_type", "default"}};
  QUIRE_ASSIGN_OR_RETURN(window["rope_theta"], fields_.Number(Key("rope.freq_base_swa"), 1.5, 1e12, window_theta));
  config_["rope_parameters"] = {{"full_attention", std::move(scaling)}, {"sliding_attention", std::move(window)}};
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> ConfigWriter::RopeFactors(const char* name) const {
  const Tensor* const tensor = FindTensor(contents_, name);
  const std::vector<int64_t> expected = {rotary_dim_ / 2};
  if (tensor == nullptr || tensor->dtype != "F32" || tensor->shape != expected) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is ",
                                                   tensor == nullptr ? "missing" : Describe(*tensor),
                                                   ", expected F32 [", rotary_dim_ / 2, "]"));
  }
  std::vector<float> factors;
  AppendAsFloat(tensor->bytes, DataType::kFloat32, &factors);
  return factors;
}

absl::Status ConfigWriter::WriteRopeFactors(json* scaling) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> factors, RopeFactors(kGgufRopeFactors));
  const float factor = *std::max_element(factors.begin(), factors.end());
  if (factor == 1.0f && *std::min_element(factors.begin(), factors.end()) == 1.0f) return absl::OkStatus();
  RopeConfig rope{.type = RopeType::kLlama3, .theta = theta_, .factor = factor};
  rope.original_max_position_embeddings = 8192;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  const std::vector<float> scaled = InverseFrequencies(rope, static_cast<int>(head_dim_));
  const std::vector<float> plain = InverseFrequencies({.theta = theta_}, static_cast<int>(head_dim_));
  for (size_t i = 0; i < factors.size(); ++i) {
    const float known = plain[i] / scaled[i];
    if (std::abs(factors[i] - known) <= 1e-5f * known) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", kGgufRopeFactors, " has ", NumberText(factors[i]), " as element ", i,
        ", only the scaling of Llama 3.1 is supported, which with factor ", factor, " has ", NumberText(known)));
  }
  *scaling = {{"rope_type", "llama3"},
              {"factor", factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_max_position_embeddings}};
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteTokens() {
  // Null says that there is none. Without the field, the default of the architecture would hold.
  config_["bos_token_id"] = nullptr;
  const std::string bos_key = "tokenizer.ggml.bos_token_id";
  if (fields_.Has(bos_key)) {
    QUIRE_ASSIGN_OR_RETURN(config_["bos_token_id"], fields_.Int(bos_key, 0, vocab_size_ - 1));
  }
  std::set<int64_t> ends;
  for (const char* name : {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    if (!fields_.Has(key)) continue;
    QUIRE_ASSIGN_OR_RETURN(const int64_t token, fields_.Int(key, 0, vocab_size_ - 1));
    ends.insert(token);
  }
  QUIRE_ASSIGN_OR_RETURN(const auto tokens, fields_.Strings("tokenizer.ggml.tokens"));
  QUIRE_ASSIGN_OR_RETURN(const auto types, fields_.Numbers("tokenizer.ggml.token_type"));
  const size_t count = std::min({tokens.size(), types.size(), static_cast<size_t>(vocab_size_)});
  const bool has_messages = std::ranges::all_of(
      kHarmonyEnds, [&](std::string_view text) { return std::ranges::find(tokens, text) != tokens.end(); });
  for (size_t i = 0; i < count; ++i) {
    if (types[i] != kControlToken || (has_messages && tokens[i] == kEndOfMessage)) continue;
    if (std::find(std::begin(kEndTexts), std::end(kEndTexts), tokens[i]) != std::end(kEndTexts)) {
      ends.insert(static_cast<int64_t>(i));
    }
  }
  config_["eos_token_id"] = ends.empty() ? json() : json(ends);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ConfigWriter::Write() {
  config_["architectures"] = {family_.architecture};
  QUIRE_RETURN_IF_ERROR(RefuseUnknownKeys());
  QUIRE_RETURN_IF_ERROR(WriteSizes());
  QUIRE_RETURN_IF_ERROR(WriteHeads());
  QUIRE_RETURN_IF_ERROR(WriteScales());
  QUIRE_RETURN_IF_ERROR(WriteWindows());
  QUIRE_RETURN_IF_ERROR(WriteRope());
  QUIRE_RETURN_IF_ERROR(WriteTokens());
  return config_.dump();
}

}  // namespace

std::string GgufArchitecture(const std::string& hugging_face) {
  for (const Architecture& architecture : kArchitectures) {
    const bool is_with_windows = architecture.with_windows != nullptr && architecture.with_windows == hugging_face;
    if (is_with_windows || architecture.hugging_face == hugging_face) return std::string(architecture.gguf);
  }
  return "";
}

std::optional<GgufNaming> FindGgufNaming(std::string_view architecture) {
  const Architecture* const found = FindArchitecture(architecture);
  if (found == nullptr) return std::nullopt;
  return GgufNaming{.family = FindFamilyOf(found->hugging_face), .mlp_norm = found->mlp_norm};
}

std::string GgufArchitectures() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    const bool is_last = &architecture == std::end(kArchitectures) - 1;
    absl::StrAppend(&names, names.empty() ? "" : is_last ? " or " : ", ", std::string(architecture.gguf));
  }
  return names;
}

bool IsRopeTensor(std::string_view name, const GgufShape& shape) {
  if (name == kGgufRopeFactors) return shape.has_rope_factors;
  return shape.naming.family->original_positions > 0 && (name == kGgufLongFactors || name == kGgufShortFactors);
}

absl::StatusOr<GgufShape> ReadGgufShape(const GgufContents& contents) {
  const GgufFields fields(contents);
  GgufShape shape;
  QUIRE_ASSIGN_OR_RETURN(shape.architecture, fields.String(kArchitecture));
  const Architecture* const architecture = FindArchitecture(shape.architecture);
  if (architecture == nullptr) return UnsupportedGgufModel(contents, shape.architecture);
  const std::string window = absl::StrCat(shape.architecture, ".attention.sliding_window");
  const bool has_windows = fields.Has(window) && !fields.IsNeutral(window);
  const bool is_other = has_windows && architecture->with_windows != nullptr;
  shape.naming = {.family = FindFamilyOf(is_other ? architecture->with_windows : architecture->hugging_face),
                  .mlp_norm = architecture->mlp_norm};
  shape.permutes_rows = architecture->permutes_rows;
  shape.has_rope_factors = architecture->has_rope_factors;
  const auto read = [&](const char* name, int64_t max, int* result, std::optional<int64_t> fallback = {}) {
    const auto value = fields.Int(absl::StrCat(shape.architecture, ".", name), 1, max, fallback);
    if (value.ok()) *result = static_cast<int>(*value);
    return value.status();
  };
  QUIRE_RETURN_IF_ERROR(read("block_count", kMaxBlocks, &shape.num_layers));
  if (shape.naming.family->moe != nullptr) {
    QUIRE_RETURN_IF_ERROR(read("expert_count", kMaxExpertCount, &shape.num_experts));
  }
  QUIRE_RETURN_IF_ERROR(read("attention.head_count", kMaxHeadCount, &shape.num_heads));
  QUIRE_RETURN_IF_ERROR(read("attention.head_count_kv", kMaxHeadCount, &shape.num_kv_heads, shape.num_heads));
  return shape;
}

absl::StatusOr<std::string> GgufConfigJson(const GgufContents& contents) {
  QUIRE_ASSIGN_OR_RETURN(GgufShape shape, ReadGgufShape(contents));
  return ConfigWriter(contents, std::move(shape)).Write();
}

bool HasQ4LayerMatrices(const GgufContents& contents) {
  return std::any_of(contents.tensors.begin(), contents.tensors.end(), [](const Tensor& tensor) {
    return tensor.dtype == "Q4_0" && absl::StartsWith(tensor.name, "blk.");
  });
}

}  // namespace quire
