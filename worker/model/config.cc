// SPDX-License-Identifier: Apache-2.0

#include "worker/model/config.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "kernels/kv_layout.h"
#include "worker/model/layer_reader.h"
#include "worker/model/model_wrapper.h"
#include "worker/model/moe_reader.h"
#include "worker/model/quantization_config.h"
#include "worker/model/unsupported_model.h"

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
constexpr double kMaxScale = 1e6;

// The fields of the whole file, and those of its text model, which are the same unless there is a wrapper.
struct ConfigFields {
  const ModelWrapper* wrapper;
  JsonFields root;
  JsonFields text;

  // A wrapper may have fields about the whole checkpoint in either place. As in transformers, the outer one wins.
  const JsonFields& Of(const char* name) const { return root.Has(name) ? root : text; }
};

absl::StatusOr<ConfigFields> FindText(const json& root) {
  const JsonFields fields(root, kConfigFile);
  const ModelWrapper* const wrapper = FindWrapper(root);
  if (wrapper == nullptr) return ConfigFields{wrapper, fields, fields};
  QUIRE_ASSIGN_OR_RETURN(const json* text, fields.Object(kTextConfig));
  if (text != nullptr) return ConfigFields{wrapper, fields, fields.Inner(*text, kTextConfig)};
  if (!wrapper->may_be_flat) return fields.Bad(kTextConfig, "an object: the text model");
  return ConfigFields{wrapper, fields, fields};
}

// The field architectures decides. Without it, the field model_type does, as in transformers. The text model in a
// wrapper has the latter alone, or the wrapper decides.
absl::StatusOr<const DecoderFamily*> ReadFamily(const json& root, const ConfigFields& fields) {
  if (fields.wrapper != nullptr) {
    const bool is_inside = &fields.text.object() != &root;
    QUIRE_ASSIGN_OR_RETURN(const std::string type, is_inside
                                                       ? fields.text.String("model_type", fields.wrapper->text_type)
                                                       : absl::StatusOr<std::string>(fields.wrapper->text_type));
    if (const DecoderFamily* family = FindFamilyOfType(type)) return family;
    return UnsupportedModel(root);
  }
  const auto found = root.find("architectures");
  if (!fields.root.Has("architectures") && fields.root.Has("model_type")) {
    QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.root.String("model_type"));
    if (const DecoderFamily* family = FindFamilyOfType(type)) return family;
  }
  if (found != root.end() && found->is_array() && found->size() == 1 && found->front().is_string()) {
    if (const DecoderFamily* family = FindFamilyOf(found->front().get<std::string>())) return family;
  }
  return UnsupportedModel(root);
}

// A model of another kind may have the field architectures of a supported one, for example after a wrong conversion.
// Its tokens would be wrong.
absl::Status CheckKind(const JsonFields& fields, const DecoderFamily& family, bool is_wrapped) {
  if (!is_wrapped && fields.Has("model_type")) {
    QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.String("model_type"));
    if (FindFamilyOfType(type) == nullptr) {
      return fields.Bad("model_type", absl::StrCat("\"", family.model_type, "\", because architectures is [\"",
                                                   family.architecture, "\"]"));
    }
  }
  QUIRE_ASSIGN_OR_RETURN(const bool is_causal, fields.Bool("is_causal", true));
  if (!is_causal) return fields.Bad("is_causal", "true: a token must not see those behind it");
  QUIRE_ASSIGN_OR_RETURN(const bool is_bidirectional, fields.Bool("use_bidirectional_attention", false));
  if (is_bidirectional) return fields.Bad("use_bidirectional_attention", "false");
  // It names another file with weights.
  if (fields.Has("transformers_weights")) return fields.Bad("transformers_weights", "absent: it is not supported");
  if (family.null_field != nullptr && fields.Has(family.null_field)) {
    return fields.Bad(family.null_field, "null: other values are not supported");
  }
  if (family.false_field != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const bool is_set, fields.Bool(family.false_field, false));
    if (is_set) return fields.Bad(family.false_field, "false: the norms that it adds are not supported");
  }
  if (family.moe != nullptr) return absl::OkStatus();
  return CheckNoExperts(fields, family.architecture);
}

absl::Status ReadInt(const JsonFields& fields, const char* name, int64_t max, int64_t fallback, int* result) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t value, fields.Int(name, 1, max, fallback));
  *result = static_cast<int>(value);
  return absl::OkStatus();
}

absl::Status ReadShape(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config) {
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "hidden_size", kMaxHiddenSize, family.hidden_size, &config->hidden_size));
  QUIRE_RETURN_IF_ERROR(
      ReadInt(fields, "intermediate_size", kMaxIntermediateSize, family.intermediate_size, &config->intermediate_size));
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "num_hidden_layers", kMaxLayers, family.num_layers, &config->num_layers));
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "vocab_size", kMaxVocabSize, family.vocab_size, &config->vocab_size));
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "max_position_embeddings", kMaxPositions, family.max_position_embeddings,
                                &config->max_position_embeddings));
  QUIRE_ASSIGN_OR_RETURN(const double epsilon, fields.Number(family.epsilon_field, 1e-12, 1e-1, family.rms_norm_eps));
  config->rms_norm_eps = static_cast<float>(epsilon);
  return absl::OkStatus();
}

absl::Status ReadHeads(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config) {
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "num_attention_heads", kMaxHeads, family.num_heads, &config->num_heads));
  const bool has_all_heads = family.num_kv_heads == 0 || fields.IsNull("num_key_value_heads");
  QUIRE_RETURN_IF_ERROR(ReadInt(fields, "num_key_value_heads", kMaxHeads,
                                has_all_heads ? config->num_heads : family.num_kv_heads, &config->num_kv_heads));
  const std::pair<const char*, int> numbers[] = {{"num_attention_heads", config->num_heads},
                                                 {"num_key_value_heads", config->num_kv_heads}};
  for (const auto& [name, number] : numbers) {
    if (fields.Has(name)) continue;
    absl::StrAppend(&config->assumed_heads, config->assumed_heads.empty() ? "" : " and ", name,
                    " is missing, so it counts as ", number);
  }
  const std::string assumed = config->assumed_heads.empty() ? "" : absl::StrCat("; ", config->assumed_heads);
  if (config->num_heads % config->num_kv_heads != 0) {
    return fields.Bad("num_key_value_heads",
                      absl::StrCat("a divisor of num_attention_heads, ", config->num_heads, assumed));
  }
  std::optional<int64_t> head_dim;
  if (family.head_dim > 0) {
    head_dim = family.head_dim;
  } else if (config->hidden_size % config->num_heads == 0) {
    head_dim = config->hidden_size / config->num_heads;
  }
  const absl::StatusOr<int64_t> dim = fields.Int("head_dim", 1, kMaxHeadDim, head_dim);
  if (!dim.ok()) return {dim.status().code(), absl::StrCat(dim.status().message(), assumed)};
  config->head_dim = static_cast<int>(*dim);
  if (config->head_dim % 2 != 0 || config->head_dim > kMaxHeadDim) {
    return absl::InvalidArgumentError(absl::StrCat(kConfigFile, ": head_dim (or hidden_size / num_attention_heads) is ",
                                                   config->head_dim, ", must be even and at most ", kMaxHeadDim,
                                                   assumed));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ReadBias(const JsonFields& fields, const char* name, bool fallback) {
  if (name == nullptr) return fallback;
  return fields.Bool(name, fallback);
}

absl::Status ReadBiases(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config) {
  QUIRE_ASSIGN_OR_RETURN(config->qkv_bias, ReadBias(fields, family.qkv_bias_field, family.qkv_bias));
  QUIRE_ASSIGN_OR_RETURN(config->attention_output_bias, ReadBias(fields, family.output_bias_field, family.output_bias));
  QUIRE_ASSIGN_OR_RETURN(config->mlp_bias, ReadBias(fields, family.mlp_bias_field, false));
  return absl::OkStatus();
}

absl::StatusOr<QkNorm> ReadQkNorm(const JsonFields& fields, const DecoderFamily& family) {
  if (family.qk_norm_field == nullptr) return family.qk_norm;
  QUIRE_ASSIGN_OR_RETURN(const bool has_norm, fields.Bool(family.qk_norm_field, false));
  return has_norm ? family.qk_norm : QkNorm::kNone;
}

absl::Status ReadActivation(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config) {
  const char* field = family.activation_field;
  QUIRE_ASSIGN_OR_RETURN(const std::string name, fields.String(field, family.activation));
  if (family.plain_activation.has_value()) {
    config->plain_activation = family.plain_activation;
    if (name != family.activation) return fields.Bad(field, absl::StrCat("\"", family.activation, "\""));
  } else if (family.clamps_gate) {
    config->activation = Activation::kClampedSwiglu;
    if (name != family.activation) return fields.Bad(field, absl::StrCat("\"", family.activation, "\""));
    for (const auto& [constant, value] : {std::pair("swiglu_alpha", kSwigluAlpha), {"swiglu_limit", kSwigluLimit}}) {
      QUIRE_ASSIGN_OR_RETURN(const double found, fields.Number(constant, 0, kMaxScale, value));
      if (static_cast<float>(found) != value) return fields.Bad(constant, absl::StrCat(value));
    }
  } else if (name == "silu" || name == "swish") {
    config->activation = Activation::kSilu;
  } else if (name == "gelu_pytorch_tanh" || name == "gelu_new" || (name == "gelu" && family.means_tanh_by_gelu)) {
    config->activation = Activation::kGeluTanh;
  } else {
    return fields.Bad(field, "\"silu\", \"swish\", \"gelu_pytorch_tanh\" or \"gelu_new\"");
  }
  return absl::OkStatus();
}

absl::Status ReadScale(const JsonFields& fields, const char* name, double fallback, double* result) {
  QUIRE_ASSIGN_OR_RETURN(*result, fields.Number(name, 1 / kMaxScale, kMaxScale, fallback));
  return absl::OkStatus();
}

// Without a cap the field is null.
absl::Status ReadSoftcap(const JsonFields& fields, const char* name, double fallback, float* result) {
  *result = 0;
  if (name == nullptr || fields.IsNull(name)) return absl::OkStatus();
  if (!fields.Has(name) && fallback == 0) return absl::OkStatus();
  double cap;
  QUIRE_RETURN_IF_ERROR(ReadScale(fields, name, fallback, &cap));
  *result = static_cast<float>(cap);
  return absl::OkStatus();
}

absl::Status ReadScales(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config) {
  config->attention_scale = 1.0f / std::sqrt(static_cast<float>(config->head_dim));
  if (family.scales_embeddings) {
    config->embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)));
  }
  if (family.query_scalar > 0) {
    double scalar;
    QUIRE_RETURN_IF_ERROR(ReadScale(fields, "query_pre_attn_scalar", family.query_scalar, &scalar));
    config->attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  }
  QUIRE_RETURN_IF_ERROR(
      ReadSoftcap(fields, family.attention_softcap_field, family.attention_softcap, &config->attention_softcap));
  QUIRE_RETURN_IF_ERROR(ReadSoftcap(fields, family.logit_softcap_field, family.logit_softcap, &config->logit_softcap));
  if (family.logit_scale_field != nullptr) {
    double scale;
    QUIRE_RETURN_IF_ERROR(ReadScale(fields, family.logit_scale_field, family.logit_scale, &scale));
    config->logit_scale = static_cast<float>(scale);
  }
  if (!family.has_multipliers) return absl::OkStatus();
  double embedding, attention, residual, logits;
  QUIRE_RETURN_IF_ERROR(ReadScale(fields, "embedding_multiplier", 1, &embedding));
  QUIRE_RETURN_IF_ERROR(ReadScale(fields, "attention_multiplier", 1, &attention));
  QUIRE_RETURN_IF_ERROR(ReadScale(fields, "residual_multiplier", 1, &residual));
  QUIRE_RETURN_IF_ERROR(ReadScale(fields, "logits_scaling", 1, &logits));
  config->embedding_scale = static_cast<float>(embedding);
  config->attention_scale = static_cast<float>(attention);
  config->residual_scale = static_cast<float>(residual);
  config->logit_scale = static_cast<float>(1 / logits);
  return absl::OkStatus();
}

// A token that is null in the file is none, and a token that is not in the file is the default of transformers.
absl::Status ReadSpecialTokens(const ConfigFields& all_fields, const DecoderFamily& family,
                               std::string_view generation_config_json, ModelConfig* config) {
  const int64_t max_token = config->vocab_size - 1;
  const auto fallback = [&](const char* name, TokenId token) -> int64_t {
    return all_fields.Of(name).IsNull(name) || token > max_token ? -1 : token;
  };
  QUIRE_ASSIGN_OR_RETURN(
      const int64_t bos,
      all_fields.Of("bos_token_id").Int("bos_token_id", 0, max_token, fallback("bos_token_id", family.bos)));
  config->bos_token_id = static_cast<TokenId>(bos);
  const JsonFields& fields = all_fields.Of("eos_token_id");
  QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> eos, fields.Ints("eos_token_id", 0, max_token));
  if (!fields.Has("eos_token_id")) {
    for (const TokenId token : {family.eos, family.more_eos[0], family.more_eos[1]}) {
      if (fallback("eos_token_id", token) >= 0) eos.push_back(token);
    }
  }
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

// In a wrapper, the outer field counts, but older files have an inner one. A checkpoint with two matrices that differ
// has them apart anyway (ReadModelConfig).
absl::StatusOr<bool> ReadTie(const ConfigFields& fields, const DecoderFamily& family) {
  constexpr const char* kName = "tie_word_embeddings";
  if (fields.wrapper == nullptr) return fields.text.Bool(kName, family.ties_embeddings);
  QUIRE_ASSIGN_OR_RETURN(const bool is_tied_inside, fields.text.Bool(kName, false));
  QUIRE_ASSIGN_OR_RETURN(const bool is_tied, fields.root.Bool(kName, fields.wrapper->ties_embeddings));
  return is_tied || is_tied_inside;
}

// Formats runs of equal values: "2x0,1x4096" for 0, 0, 4096.
template <typename ValueOf>
std::string Runs(const std::vector<LayerConfig>& layers, ValueOf value_of) {
  std::string text;
  for (size_t first = 0; first < layers.size();) {
    size_t end = first;
    while (end < layers.size() && value_of(layers[end]) == value_of(layers[first])) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", end - first, "x", value_of(layers[first]));
    first = end;
  }
  return text;
}

std::string Summary(const RopeConfig& rope) {
  std::string text = absl::StrCat(Name(rope.type), " theta ", rope.theta, " factor ", rope.factor, " original ",
                                  rope.original_max_position_embeddings, " freq_factors ", rope.low_freq_factor, "/",
                                  rope.high_freq_factor, " betas ", rope.beta_fast, "/", rope.beta_slow,
                                  " attention_factor ", rope.attention_factor, " truncate ", rope.truncate);
  if (rope.query_growth != 0) absl::StrAppend(&text, " query_growth ", rope.query_growth);
  if (rope.rotary_part != 1) absl::StrAppend(&text, " rotary_part ", rope.rotary_part);
  if (!rope.length_factors.empty()) absl::StrAppend(&text, " factors ", absl::StrJoin(rope.length_factors, ","));
  return text;
}

std::string Summary(const MoeConfig& moe) {
  const RouterRule& router = moe.router;
  return absl::StrCat(router.top_k, "/", router.num_experts, " width ", moe.width, " score ",
                      static_cast<int>(router.score), " normalizes ", router.normalizes, " groups ", router.top_groups,
                      "/", router.num_groups, " scale ", router.scale, " shared ", moe.shared_width);
}

// Returns what differs from a decoder like Llama. It is empty for such a decoder, so that its fingerprint stays what it
// was before there were others.
std::string Differences(const ModelConfig& config) {
  std::string text;
  if (config.norms != NormPlacement::kBefore) absl::StrAppend(&text, " norms ", static_cast<int>(config.norms));
  if (config.norms_add_one) absl::StrAppend(&text, " norms_add_one");
  if (config.activation == Activation::kGeluTanh) absl::StrAppend(&text, " gelu_tanh");
  if (config.activation == Activation::kClampedSwiglu) absl::StrAppend(&text, " clamped_swiglu");
  if (config.has_sinks) absl::StrAppend(&text, " sinks");
  if (config.norms_subtract_mean) absl::StrAppend(&text, " layer_norm");
  if (config.is_parallel) absl::StrAppend(&text, " parallel");
  if (config.plain_activation.has_value()) {
    absl::StrAppend(&text, " plain_activation ", static_cast<int>(*config.plain_activation));
  }
  if (config.fuses_qkv && config.fuses_gate_up) {
    absl::StrAppend(&text, " fused");
  } else if (config.fuses_qkv || config.fuses_gate_up) {
    absl::StrAppend(&text, config.fuses_qkv ? " fused_qkv" : " fused_gate_up");
  }
  if (config.rotates_neighbours) absl::StrAppend(&text, " rotates_neighbours");
  const bool rotates_all = std::all_of(config.layers.begin(), config.layers.end(),
                                       [](const LayerConfig& layer) { return layer.rope == LayerRope::kMain; });
  if (!rotates_all) {
    absl::StrAppend(&text, " ropes ",
                    Runs(config.layers, [](const LayerConfig& l) { return static_cast<int>(l.rope); }));
  }
  if (config.window_rope.has_value()) absl::StrAppend(&text, " window_rope ", Summary(*config.window_rope));
  if (config.attention_scale != 1.0f / std::sqrt(static_cast<float>(config.head_dim))) {
    absl::StrAppend(&text, " attention_scale ", config.attention_scale);
  }
  const std::pair<const char*, float> scales[] = {{" embedding_scale ", config.embedding_scale},
                                                  {" residual_scale ", config.residual_scale},
                                                  {" logit_scale ", config.logit_scale}};
  for (const auto& [name, scale] : scales) {
    if (scale != 1) absl::StrAppend(&text, name, scale);
  }
  if (config.attention_softcap != 0) absl::StrAppend(&text, " attention_softcap ", config.attention_softcap);
  if (config.logit_softcap != 0) absl::StrAppend(&text, " logit_softcap ", config.logit_softcap);
  if (config.moe.exists()) {
    absl::StrAppend(&text, " experts ", Summary(config.moe), " in layers ",
                    Runs(config.layers, [](const LayerConfig& l) { return static_cast<int>(l.is_moe); }));
  }
  return text;
}

// Returns one line with every field. `quantization` describes the quantization, if there is one.
std::string Fields(const ModelConfig& config, const std::string& quantization) {
  // Without quantization, nothing is added, so that fingerprints stay what they were.
  const bool is_plain = config.quantization.format == CheckpointFormat::kPlain;
  const std::string windows = Runs(config.layers, [](const LayerConfig& layer) { return layer.window; });
  return absl::StrCat(config.architecture, " hidden ", config.hidden_size, " ffn ", config.intermediate_size,
                      " layers ", config.num_layers, " heads ", config.num_heads, "/", config.num_kv_heads,
                      " head_dim ", config.head_dim, " vocab ", config.vocab_size, " context ",
                      config.max_position_embeddings, " eps ", config.rms_norm_eps, " rope ", Summary(config.rope),
                      " windows ", windows, " qkv_bias ", config.qkv_bias, " o_bias ", config.attention_output_bias,
                      " mlp_bias ", config.mlp_bias, " qk_norm ", static_cast<int>(config.qk_norm), " tied ",
                      config.tie_word_embeddings, " bos ", config.bos_token_id, " eos ",
                      absl::StrJoin(config.eos_token_ids, ","), is_plain ? "" : " quantization ",
                      is_plain ? "" : quantization, Differences(config));
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json, std::string_view generation_config_json,
                                             bool is_long) {
  QUIRE_ASSIGN_OR_RETURN(const json root, ParseModelJson(config_json, kConfigFile));
  if (!root.is_object()) return absl::InvalidArgumentError("config.json: must be an object");
  QUIRE_ASSIGN_OR_RETURN(const ConfigFields all_fields, FindText(root));
  const JsonFields& fields = all_fields.text;
  const bool is_wrapped = all_fields.wrapper != nullptr;
  ModelConfig config;
  QUIRE_ASSIGN_OR_RETURN(const DecoderFamily* family, ReadFamily(root, all_fields));
  QUIRE_RETURN_IF_ERROR(CheckKind(all_fields.root, *family, is_wrapped));
  if (is_wrapped) QUIRE_RETURN_IF_ERROR(CheckKind(fields, *family, is_wrapped));
  config.architecture = family->architecture;
  config.names = family->names;
  config.norms = family->names.placement();
  config.norms_add_one = family->norms_add_one;
  config.norms_subtract_mean = family->norms_subtract_mean;
  config.is_parallel = family->is_parallel;
  QUIRE_ASSIGN_OR_RETURN(config.qk_norm, ReadQkNorm(fields, *family));
  config.fuses_qkv = family->fuses_qkv;
  config.fuses_gate_up = family->fuses_gate_up;
  config.has_sinks = family->has_sinks;
  config.rotates_neighbours = family->rotates_neighbours;
  QUIRE_RETURN_IF_ERROR(ReadActivation(fields, *family, &config));
  const bool is_quantized_inside = fields.Has("quantization_config") || fields.Has("compression_config");
  QUIRE_ASSIGN_OR_RETURN(config.quantization, ReadQuantizationConfig(is_quantized_inside ? fields : all_fields.root));
  const char* const dtype = all_fields.Of("dtype").Has("dtype") ? "dtype" : "torch_dtype";
  QUIRE_ASSIGN_OR_RETURN(config.torch_dtype, all_fields.Of(dtype).String(dtype, family->dtype));
  QUIRE_RETURN_IF_ERROR(ReadShape(fields, *family, &config));
  QUIRE_RETURN_IF_ERROR(ReadHeads(fields, *family, &config));
  QUIRE_RETURN_IF_ERROR(ReadLayers(fields, *family, is_long, &config));
  if (family->moe != nullptr) QUIRE_RETURN_IF_ERROR(ReadMoe(fields, *family, &config));
  QUIRE_RETURN_IF_ERROR(ReadBiases(fields, *family, &config));
  QUIRE_RETURN_IF_ERROR(ReadScales(fields, *family, &config));
  QUIRE_ASSIGN_OR_RETURN(config.tie_word_embeddings, ReadTie(all_fields, *family));
  QUIRE_RETURN_IF_ERROR(ReadSpecialTokens(all_fields, *family, generation_config_json, &config));
  return config;
}

std::vector<OptionalPart> OptionalPartsOf(const ModelConfig& config) {
  std::vector<OptionalPart> parts;
  const auto add = [&](OptionalPart part, bool is_needed) {
    if (is_needed) parts.push_back(part);
  };
  add(OptionalPart::kScaledEmbeddings, config.embedding_scale != 1);
  add(OptionalPart::kScaledProducts, config.residual_scale != 1 || config.logit_scale != 1);
  add(OptionalPart::kSoftcap, config.attention_softcap != 0 || config.logit_softcap != 0);
  add(OptionalPart::kGeluTanh, config.activation == Activation::kGeluTanh);
  add(OptionalPart::kPartialRotation, RotaryDim(config.rope, config.head_dim) != config.head_dim);
  add(OptionalPart::kNormedOutputs, config.norms != NormPlacement::kBefore);
  add(OptionalPart::kNormedProjections, config.qk_norm == QkNorm::kWhole);
  add(OptionalPart::kExperts, config.moe.exists());
  add(OptionalPart::kRotatedNorms, config.qk_norm == QkNorm::kPerRotatedHead);
  add(OptionalPart::kGrowingQueries, config.rope.query_growth != 0);
  add(OptionalPart::kLayerNorm, config.norms_subtract_mean);
  add(OptionalPart::kPlainMlp, !config.has_gate());
  add(OptionalPart::kRanks, config.shard.size > 1);
  add(OptionalPart::kSinks, config.has_sinks);
  add(OptionalPart::kClampedSwiglu, config.activation == Activation::kClampedSwiglu || config.moe.has_biases());
  return parts;
}

int ModelConfig::num_columns() const {
  return std::accumulate(cache_groups.begin(), cache_groups.end(), 0,
                         [](int sum, const CacheGroup& group) { return sum + group.blocks_per_sheet; });
}

int ModelConfig::num_slots() const {
  int num_slots = 0;
  for (const LayerConfig& layer : layers) num_slots = std::max(num_slots, layer.slot + 1);
  return num_slots;
}

void MakeOneCacheGroup(ModelConfig* config) {
  config->cache_groups = {CacheGroup{}};
  for (size_t i = 0; i < config->layers.size(); ++i) {
    config->layers[i].column = 0;
    config->layers[i].slot = static_cast<int>(i);
  }
}

std::string Summary(const ModelConfig& config) {
  return Fields(config, Summary(config.quantization));
}

std::string Description(const ModelConfig& config) {
  return Fields(config, Description(config.quantization));
}

}  // namespace quire
