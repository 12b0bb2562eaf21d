// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_tensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "kernels/half_float.h"
#include "worker/model/decoder_family.h"
#include "worker/model/gguf_config.h"
#include "worker/model/gguf_fields.h"
#include "worker/model/gguf_types.h"
#include "worker/model/json_reader.h"

namespace quire {
namespace {

struct NamePair {
  std::string_view gguf;
  std::string_view hugging_face;
  bool (*is_in)(const DecoderFamily& family);  // Whether layers of the family have the tensor.
};

constexpr NamePair kTopNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight", nullptr},
    {"output_norm.weight", "model.norm.weight", nullptr},
    {"output.weight", "lm_head.weight", nullptr},
};

bool IsAlwaysIn(const DecoderFamily& /*family*/) {
  return true;
}
bool HasQkv(const DecoderFamily& family) {
  return family.fuses_qkv;
}
bool HasThreeProjections(const DecoderFamily& family) {
  return !family.fuses_qkv;
}
bool HasQkvBias(const DecoderFamily& family) {
  return family.qkv_bias || family.qkv_bias_field != nullptr;
}
bool HasOutputBias(const DecoderFamily& family) {
  return family.output_bias_field != nullptr;
}
bool HasMlpBias(const DecoderFamily& family) {
  return family.mlp_bias_field != nullptr;
}
// All layers of a file with experts have them.
bool HasExperts(const DecoderFamily& family) {
  return family.moe != nullptr;
}
// Experts whose matrices have the usual names.
bool HasPlainExperts(const DecoderFamily& family) {
  return HasExperts(family) && !family.moe->names.has_biases;
}
// The experts of gpt-oss, whose checkpoints have gate and up in one tensor.
bool HasBiasedExperts(const DecoderFamily& family) {
  return HasExperts(family) && family.moe->names.has_biases;
}
bool HasSinks(const DecoderFamily& family) {
  return family.has_sinks;
}
bool HasMlp(const DecoderFamily& family) {
  return !HasExperts(family);
}
bool HasGate(const DecoderFamily& family) {
  return HasMlp(family) && !family.fuses_gate_up && !family.plain_activation.has_value();
}
bool HasGateBias(const DecoderFamily& family) {
  return HasGate(family) && HasMlpBias(family);
}
bool HasUp(const DecoderFamily& family) {
  return HasMlp(family) && !family.fuses_gate_up;
}
bool HasGateUp(const DecoderFamily& family) {
  return family.fuses_gate_up;
}

constexpr NamePair kLayerNames[] = {
    {"attn_qkv.weight", "self_attn.qkv_proj.weight", HasQkv},
    {"attn_q.weight", "self_attn.q_proj.weight", HasThreeProjections},
    {"attn_k.weight", "self_attn.k_proj.weight", HasThreeProjections},
    {"attn_v.weight", "self_attn.v_proj.weight", HasThreeProjections},
    {"attn_output.weight", "self_attn.o_proj.weight", IsAlwaysIn},
    {"attn_q.bias", "self_attn.q_proj.bias", HasQkvBias},
    {"attn_k.bias", "self_attn.k_proj.bias", HasQkvBias},
    {"attn_v.bias", "self_attn.v_proj.bias", HasQkvBias},
    {"attn_output.bias", "self_attn.o_proj.bias", HasOutputBias},
    {"ffn_gate.weight", "mlp.gate_proj.weight", HasGate},
    {"ffn_up.weight", "mlp.up_proj.weight", HasUp},
    {"ffn_up.weight", "mlp.gate_up_proj.weight", HasGateUp},
    {"ffn_down.weight", "mlp.down_proj.weight", HasMlp},
    {"attn_sinks.weight", "self_attn.sinks", HasSinks},
    {"ffn_gate_inp.weight", "mlp.gate.weight", HasPlainExperts},
    {"ffn_gate_inp.weight", "mlp.router.weight", HasBiasedExperts},
    {"ffn_gate_inp.bias", "mlp.router.bias", HasBiasedExperts},
    {"ffn_gate.bias", "mlp.gate_proj.bias", HasGateBias},
    {"ffn_up.bias", "mlp.up_proj.bias", HasMlpBias},
    {"ffn_down.bias", "mlp.down_proj.bias", HasMlpBias},
};

// Tensors [experts, rows, cols] and biases [experts, rows], and what follows the number of the expert in the names of
// Hugging Face.
constexpr NamePair kExpertNames[] = {
    {"ffn_gate_exps.weight", "gate_proj.weight", HasPlainExperts},
    {"ffn_up_exps.weight", "up_proj.weight", HasPlainExperts},
    {"ffn_down_exps.weight", "down_proj.weight", HasExperts},
    {"ffn_gate_exps.weight", "gate_up_proj.gate.weight", HasBiasedExperts},
    {"ffn_up_exps.weight", "gate_up_proj.up.weight", HasBiasedExperts},
    {"ffn_gate_exps.bias", "gate_up_proj.gate.bias", HasBiasedExperts},
    {"ffn_up_exps.bias", "gate_up_proj.up.bias", HasBiasedExperts},
    {"ffn_down_exps.bias", "down_proj.bias", HasBiasedExperts},
};
constexpr char kExpertsPrefix[] = "mlp.experts.";

// A norm of a layer. Its name of Hugging Face depends on the family.
struct NormName {
  std::string_view gguf;
  const char* LayerNames::*name;
  bool is_of_attention = false;
};
constexpr NormName kNormNames[] = {
    {"attn_norm.weight", &LayerNames::input_norm},
    {"post_attention_norm.weight", &LayerNames::attention_output_norm},
    {"", &LayerNames::mlp_norm},  // GgufNaming::mlp_norm
    {"post_ffw_norm.weight", &LayerNames::mlp_output_norm},
    {"attn_q_norm.weight", &LayerNames::q_norm, /*is_of_attention=*/true},
    {"attn_k_norm.weight", &LayerNames::k_norm, /*is_of_attention=*/true},
};

// Returns "" for a norm that the layers of the family do not have.
std::string HuggingFaceNorm(const NormName& norm, const DecoderFamily& family) {
  const char* const name = family.names.*norm.name;
  if (name == nullptr || (norm.is_of_attention && family.qk_norm == QkNorm::kNone)) return "";
  return absl::StrCat(norm.is_of_attention ? "self_attn." : "", name, ".weight");
}

std::string_view GgufNorm(const NormName& norm, const GgufNaming& naming) {
  return norm.name == &LayerNames::mlp_norm ? naming.mlp_norm : norm.gguf;
}

// Returns the name of a tensor of a layer without the layer, or "" for one that the family does not have.
std::string HuggingFacePart(std::string_view gguf, const GgufNaming& naming) {
  const DecoderFamily& family = *naming.family;
  for (const NamePair& pair : kLayerNames) {
    if (pair.gguf == gguf && pair.is_in(family)) return std::string(pair.hugging_face);
  }
  for (const NormName& norm : kNormNames) {
    if (GgufNorm(norm, naming) != gguf) continue;
    if (std::string name = HuggingFaceNorm(norm, family); !name.empty()) return name;
  }
  return "";
}

// Removes "blk.3." from the name of a tensor of layer 3, and returns the number; -1 if the name has another form.
int64_t TakeLayer(int64_t num_layers, std::string_view* name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name->starts_with(kPrefix)) return -1;
  const size_t dot = name->find('.', kPrefix.size());
  if (dot == std::string_view::npos) return -1;
  int64_t layer;
  const std::string digits(name->substr(kPrefix.size(), dot - kPrefix.size()));
  if (!absl::SimpleAtoi(digits, &layer) || layer < 0 || layer >= num_layers || absl::StrCat(layer) != digits) return -1;
  name->remove_prefix(dot + 1);
  return layer;
}

// Returns "" for a name that the family does not have.
std::string HuggingFaceName(std::string_view name, const GgufNaming& naming, int64_t num_layers) {
  for (const NamePair& pair : kTopNames) {
    if (pair.gguf == name) return std::string(pair.hugging_face);
  }
  const int64_t layer = TakeLayer(num_layers, &name);
  const std::string part = layer < 0 ? "" : HuggingFacePart(name, naming);
  return part.empty() ? "" : absl::StrCat(kLayersPrefix, layer, ".", part);
}

// If the tensor has the matrices of all experts of a layer, adds each of them as a tensor. Returns whether it has.
absl::StatusOr<bool> AddExperts(const Tensor& from, const GgufShape& shape, std::vector<Tensor>* tensors) {
  std::string_view name = from.name;
  const int64_t layer = TakeLayer(shape.num_layers, &name);
  const auto* const pair = std::find_if(std::begin(kExpertNames), std::end(kExpertNames), [&](const NamePair& one) {
    return one.gguf == name && one.is_in(*shape.naming.family);
  });
  if (layer < 0 || pair == std::end(kExpertNames)) return false;
  const bool is_bias = name.ends_with(".bias");
  if (from.shape.size() != (is_bias ? 2 : 3) || from.shape[0] != shape.num_experts) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", from.name, " is ", Describe(from), ", expected ",
                                                   shape.num_experts, is_bias ? " rows" : " matrices",
                                                   ", one for each expert"));
  }
  const size_t bytes = from.bytes.size() / shape.num_experts;
  for (int expert = 0; expert < shape.num_experts; ++expert) {
    Tensor tensor = from;
    tensor.name = absl::StrCat(kLayersPrefix, layer, ".", kExpertsPrefix, expert, ".",
                               absl::string_view(pair->hugging_face.data(), pair->hugging_face.size()));
    tensor.shape.erase(tensor.shape.begin());
    tensor.bytes = from.bytes.substr(expert * bytes, bytes);
    tensors->push_back(std::move(tensor));
  }
  return true;
}

void StoreAsDequantized(const float* values, uint32_t count, char* to) {
  for (uint32_t i = 0; i < count; ++i) {
    uint16_t bits;
    if constexpr (kDequantizedType == DataType::kFloat16) {
      bits = ToFloat16(values[i]).bits;
    } else {
      bits = ToBFloat16(values[i]).bits;
    }
    std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> GgufTensors(const GgufContents& contents) {
  QUIRE_ASSIGN_OR_RETURN(const GgufShape shape, ReadGgufShape(contents));
  std::vector<Tensor> tensors;
  for (const Tensor& from : contents.tensors) {
    if (IsRopeTensor(from.name, shape)) continue;
    QUIRE_ASSIGN_OR_RETURN(const bool has_experts, AddExperts(from, shape, &tensors));
    if (has_experts) continue;
    Tensor tensor = from;
    tensor.name = HuggingFaceName(from.name, shape.naming, shape.num_layers);
    if (tensor.name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Shown(nlohmann::json(from.name)),
                                                     " of the architecture ", shape.architecture, " with ",
                                                     shape.num_layers, " layers is not supported"));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::optional<std::string> GgufTensorName(std::string_view hugging_face, const GgufNaming& naming) {
  for (const NamePair& pair : kTopNames) {
    if (pair.hugging_face == hugging_face) return std::string(pair.gguf);
  }
  if (!hugging_face.starts_with(kLayersPrefix)) return std::nullopt;
  hugging_face.remove_prefix(std::string_view(kLayersPrefix).size());
  const size_t dot = hugging_face.find('.');
  if (dot == hugging_face.npos) return std::nullopt;
  const std::string prefix = absl::StrCat("blk.", std::string(hugging_face.substr(0, dot)), ".");
  const std::string_view part = hugging_face.substr(dot + 1);
  for (const NamePair& pair : kLayerNames) {
    if (pair.hugging_face == part && pair.is_in(*naming.family)) return absl::StrCat(prefix, std::string(pair.gguf));
  }
  for (const NamePair& pair : kExpertNames) {
    if (!pair.is_in(*naming.family)) continue;
    if (part.starts_with(kExpertsPrefix) && part.ends_with("." + std::string(pair.hugging_face))) {
      return absl::StrCat(prefix, std::string(pair.gguf));
    }
  }
  for (const NormName& norm : kNormNames) {
    if (HuggingFaceNorm(norm, *naming.family) == part) {
      return absl::StrCat(prefix, std::string(GgufNorm(norm, naming)));
    }
  }
  return std::nullopt;
}

bool IsGgufQuantized(const Tensor& tensor) {
  const GgufTensorType* type = FindGgufTensorType(tensor.dtype);
  return type != nullptr && type->dequantize != nullptr;
}

OwnedTensor DequantizeGgufTensor(const Tensor& tensor) {
  const GgufTensorType& type = *FindGgufTensorType(tensor.dtype);
  const size_t blocks = tensor.bytes.size() / type.block_bytes;
  const size_t size = blocks * type.block_elements * SizeOf(kDequantizedType);
  OwnedTensor result{tensor, std::make_unique_for_overwrite<char[]>(size)};
  const char* from = tensor.bytes.data();
  char* to = result.bytes.get();
  constexpr int kMaxBlockElements = 256;
  float values[kMaxBlockElements];
  for (size_t i = 0; i < blocks; ++i, from += type.block_bytes) {
    type.dequantize(reinterpret_cast<const uint8_t*>(from), values);
    StoreAsDequantized(values, type.block_elements, to);
    to += type.block_elements * SizeOf(kDequantizedType);
  }
  result.tensor.dtype = kDequantizedType == DataType::kFloat16 ? "F16" : "BF16";
  result.tensor.bytes = std::string_view(result.bytes.get(), size);
  return result;
}

}  // namespace quire
