// SPDX-License-Identifier: Apache-2.0

#include "worker/model/unsupported_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/model/decoder_family.h"
#include "worker/model/gguf_config.h"
#include "worker/model/gguf_fields.h"
#include "worker/model/json_reader.h"
#include "worker/model/model_wrapper.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr char kNoEncoder[] = "encoders are not supported, only decoders that generate text";
constexpr char kNoMedia[] = "images, audio and video are not supported";
constexpr char kNoState[] =
    "layers with a recurrent state are not supported (Mamba, linear attention, gated delta nets, short convolutions)";
constexpr char kNoExperts[] = "this mixture of experts is not supported";
constexpr char kNoLatents[] = "latent attention (MLA) is not supported";

// A part of a model that is not supported, and the fields of config.json that show it. Errors name the first that is
// set.
struct Part {
  const char* refusal;
  std::vector<const char*> fields;
};
const std::vector<Part>& Parts() {
  static const auto* const parts = new std::vector<Part>{
      {kNoEncoder, {"is_encoder_decoder"}},
      {kNoMedia, {"vision_config", "audio_config", "video_config", "img_processor", "audio_processor"}},
      {kNoState,
       {"mamba_d_state", "mamba_num_heads", "mamba_state_dim", "ssm_state_size", "ssm_cfg", "state_size",
        "conv_L_cache", "linear_num_value_heads", "lru_width"}},
      {kNoExperts, {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}},
      {kNoLatents, {"kv_lora_rank"}},
  };
  return *parts;
}

// Objects of config.json that describe the text model of a larger one.
constexpr const char* kTextModels[] = {"text_config", "llm_config", "language_config"};

// Values of layer_types.
constexpr std::string_view kAttentionLayers[] = {"full_attention", "sliding_attention", "chunked_attention",
                                                 "attention"};
constexpr std::string_view kStateLayers[] = {"linear_attention", "mamba", "mamba2", "conv", "recurrent", "hybrid"};

// Values of model_type, of models that turn a text into vectors.
constexpr std::string_view kEncoders[] = {"bert",   "roberta",    "xlm-roberta", "distilbert",
                                          "albert", "electra",    "deberta-v2",  "modernbert",
                                          "mpnet",  "nomic_bert", "camembert",   "esm"};

// Architectures of GGUF files that the worker reads from safetensors alone.
struct SafetensorsOnly {
  std::string_view gguf;
  const char* architecture;
};
constexpr SafetensorsOnly kSafetensorsOnly[] = {
    {"apertus", "ApertusForCausalLM"},
    {"qwen2vl", "Qwen2_5_VLForConditionalGeneration"},
    {"qwen3vl", "Qwen3VLForConditionalGeneration"},
};

// Keys of GGUF files, behind the name of the architecture.
struct GgufPart {
  const char* refusal;
  const char* key;
};
constexpr GgufPart kGgufParts[] = {
    {kNoEncoder, "pooling_type"},
    {kNoEncoder, "decoder_start_token_id"},
    {kNoMedia, "vision.block_count"},
    {kNoMedia, "rope.dimension_sections"},
    {kNoState, "ssm.state_size"},
    {kNoState, "shortconv.l_cache"},
    {kNoState, "wkv.head_size"},
    {kNoExperts, "expert_count"},
    {kNoLatents, "attention.kv_lora_rank"},
};

template <typename Names>
bool Contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Returns the field if it is present, and its value is not one for a part that the model does not have.
const json* FindSet(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null() || *found == false || *found == 0) return nullptr;
  return found->is_object() && found->empty() ? nullptr : &*found;
}

std::optional<std::string> TextOf(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

// Where the type of each layer is known, these types decide. Other fields may be left over from a related model.
// Returns whether they are known, and adds the first layer with a state.
bool AddListedState(const json& object, const std::string& prefix, std::vector<std::string>* reasons) {
  const auto types = object.find("layer_types");
  if (types == object.end() || !types->is_array() || types->empty()) return false;
  for (size_t i = 0; i < types->size(); ++i) {
    const json& type = (*types)[i];
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    if (Contains(kAttentionLayers, name)) continue;
    if (!Contains(kStateLayers, name)) return false;
    reasons->push_back(absl::StrCat(prefix, "layer_types[", i, "] is ", Shown(type), ": ", kNoState));
    return true;
  }
  return true;
}

// Adds what the object tells about parts that are not supported: "num_experts is 8: this mixture of experts is not
// ...".
void AddParts(const json& object, const std::string& prefix, std::vector<std::string>* reasons) {
  if (const auto type = TextOf(object, "model_type"); type.has_value() && Contains(kEncoders, *type)) {
    reasons->push_back(absl::StrCat(prefix, "model_type is ", Shown(*type), ": ", kNoEncoder));
  }
  const bool is_wrapper = FindWrapper(object) != nullptr;
  for (const Part& part : Parts()) {
    if (part.refusal == kNoMedia && is_wrapper) continue;
    if (part.refusal == kNoState && AddListedState(object, prefix, reasons)) continue;
    for (const char* field : part.fields) {
      const json* const value = FindSet(object, field);
      if (value == nullptr) continue;
      reasons->push_back(absl::StrCat(prefix, field, " is ", Shown(*value), ": ", part.refusal));
      break;
    }
  }
}

// Adds what the object of the text model in a larger one tells.
void AddTextModel(const json& object, const std::string& name, bool is_in_wrapper, std::vector<std::string>* reasons) {
  const size_t num_before = reasons->size();
  AddParts(object, name + ".", reasons);
  if (reasons->size() > num_before) return;
  const std::optional<std::string> type = TextOf(object, "model_type");
  const DecoderFamily* const family = type.has_value() ? FindFamilyOfType(*type) : nullptr;
  std::string reason =
      absl::StrCat(name, type.has_value() ? absl::StrCat(".model_type is ", Shown(*type)) : " is there",
                   is_in_wrapper ? ": this text model is not supported"
                                 : ": the text model inside of a larger model of this kind is not read");
  if (family != nullptr) {
    absl::StrAppend(&reason, ", but a checkpoint of this text model alone (", family->architecture, ") is supported");
  }
  reasons->push_back(std::move(reason));
}

std::string Joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) absl::StrAppend(&text, "; ", reason);
  return text;
}

}  // namespace

absl::Status UnsupportedModel(const json& root) {
  std::vector<std::string> reasons;
  AddParts(root, "", &reasons);
  for (const char* name : kTextModels) {
    const auto found = root.find(name);
    if (found != root.end() && found->is_object()) AddTextModel(*found, name, FindWrapper(root) != nullptr, &reasons);
  }
  const auto architectures = root.find("architectures");
  const bool has_architectures = architectures != root.end() && !architectures->is_null();
  const auto type = root.find("model_type");
  std::string text = absl::StrCat(
      kConfigFile, ": architectures ", has_architectures ? absl::StrCat("is ", Shown(*architectures)) : "is missing",
      type == root.end() || type->is_null() ? "" : absl::StrCat(" and model_type is ", Shown(*type)));
  if (reasons.empty()) absl::StrAppend(&text, ", must be ", SupportedArchitectures(), WrapperArchitectures());
  return absl::InvalidArgumentError(absl::StrCat(text, Joined(reasons), kModelList));
}

std::string RefusalOfGgufKey(std::string_view key) {
  for (const GgufPart& part : kGgufParts) {
    if (key == part.key) return part.refusal;
  }
  return "it is not supported";
}

absl::Status UnsupportedGgufModel(const GgufContents& contents, const std::string& architecture) {
  const GgufFields fields(contents);
  std::vector<std::string> reasons;
  for (const GgufPart& part : kGgufParts) {
    const std::string key = absl::StrCat(architecture, ".", part.key);
    if (!fields.Has(key) || fields.IsNeutral(key)) continue;
    const absl::StatusOr<int64_t> value = fields.Int(key, INT64_MIN, INT64_MAX);
    reasons.push_back(absl::StrCat(key, value.ok() ? absl::StrCat(" is ", *value) : " is there", ": ", part.refusal));
  }
  const std::string causal = absl::StrCat(architecture, ".attention.causal");
  if (const auto is_causal = fields.Bool(causal, true); is_causal.ok() && !*is_causal) {
    reasons.push_back(absl::StrCat(causal, " is false: ", kNoEncoder));
  }
  std::string text = absl::StrCat("general.architecture is ", Shown(architecture), ", must be ", GgufArchitectures());
  const auto* const safetensors = std::find_if(std::begin(kSafetensorsOnly), std::end(kSafetensorsOnly),
                                               [&](const SafetensorsOnly& one) { return one.gguf == architecture; });
  if (reasons.empty() && safetensors != std::end(kSafetensorsOnly)) {
    reasons.push_back(absl::StrCat("as safetensors this works (", safetensors->architecture, ")"));
  }
  return absl::InvalidArgumentError(absl::StrCat(text, Joined(reasons), kModelList));
}

}  // namespace quire
