// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_tensors.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "kernels/half_float.h"
#include "worker/model/gguf_config.h"
#include "worker/model/gguf_fields.h"
#include "worker/model/gguf_types.h"
#include "worker/model/json_reader.h"

namespace quire {
namespace {

// The architectures that have a tensor.
constexpr unsigned kLlama = 1, kQwen2 = 2, kQwen3 = 4, kAll = kLlama | kQwen2 | kQwen3;

struct NamePair {
  std::string_view gguf;
  std::string_view hugging_face;
  unsigned architectures;
};

constexpr NamePair kTopNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight", kAll},
    {"output_norm.weight", "model.norm.weight", kAll},
    {"output.weight", "lm_head.weight", kAll},
};

constexpr NamePair kLayerNames[] = {
    {"attn_norm.weight", "input_layernorm.weight", kAll},
    {"attn_q.weight", "self_attn.q_proj.weight", kAll},
    {"attn_k.weight", "self_attn.k_proj.weight", kAll},
    {"attn_v.weight", "self_attn.v_proj.weight", kAll},
    {"attn_output.weight", "self_attn.o_proj.weight", kAll},
    {"attn_q.bias", "self_attn.q_proj.bias", kLlama | kQwen2},
    {"attn_k.bias", "self_attn.k_proj.bias", kLlama | kQwen2},
    {"attn_v.bias", "self_attn.v_proj.bias", kLlama | kQwen2},
    {"attn_output.bias", "self_attn.o_proj.bias", kLlama},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", kQwen3},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", kQwen3},
    {"ffn_norm.weight", "post_attention_layernorm.weight", kAll},
    {"ffn_gate.weight", "mlp.gate_proj.weight", kAll},
    {"ffn_up.weight", "mlp.up_proj.weight", kAll},
    {"ffn_down.weight", "mlp.down_proj.weight", kAll},
    {"ffn_gate.bias", "mlp.gate_proj.bias", kLlama},
    {"ffn_up.bias", "mlp.up_proj.bias", kLlama},
    {"ffn_down.bias", "mlp.down_proj.bias", kLlama},
};

template <size_t kCount>
const NamePair* FindName(const NamePair (&names)[kCount], std::string_view gguf, unsigned architecture) {
  for (const NamePair& name : names) {
    if (name.gguf == gguf && (name.architectures & architecture) != 0) return &name;
  }
  return nullptr;
}

// Returns "" for a name that the architecture does not have.
std::string HuggingFaceName(std::string_view name, unsigned architecture, int64_t num_layers) {
  if (const NamePair* pair = FindName(kTopNames, name, architecture)) return std::string(pair->hugging_face);
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return "";
  name.remove_prefix(kPrefix.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return "";
  int64_t layer;
  const std::string digits(name.substr(0, dot));
  if (!absl::SimpleAtoi(digits, &layer) || layer < 0 || layer >= num_layers || absl::StrCat(layer) != digits) return "";
  const NamePair* pair = FindName(kLayerNames, name.substr(dot + 1), architecture);
  if (pair == nullptr) return "";
  return absl::StrCat(kLayersPrefix, layer, ".",
                      absl::string_view(pair->hugging_face.data(), pair->hugging_face.size()));
}

// Returns the number of heads of a tensor of Q or K; 0 of another tensor.
int HeadsOf(std::string_view name, int num_heads, int num_kv_heads) {
  if (name.ends_with(".attn_q.weight") || name.ends_with(".attn_q.bias")) return num_heads;
  if (name.ends_with(".attn_k.weight") || name.ends_with(".attn_k.bias")) return num_kv_heads;
  return 0;
}

unsigned FlagOf(std::string_view architecture) {
  return architecture == "llama" ? kLlama : architecture == "qwen2" ? kQwen2 : kQwen3;
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
    if (shape.architecture == "llama" && from.name == kGgufRopeFactors) continue;
    Tensor tensor = from;
    tensor.name = HuggingFaceName(from.name, FlagOf(shape.architecture), shape.num_layers);
    if (tensor.name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Shown(nlohmann::json(from.name)),
                                                     " of the architecture ", shape.architecture, " with ",
                                                     shape.num_layers, " layers is not supported"));
    }
    if (shape.architecture == "llama") {
      const int heads = HeadsOf(from.name, shape.num_heads, shape.num_kv_heads);
      if (heads != 0 && (tensor.shape.empty() || tensor.shape[0] % (2 * heads) != 0)) {
        return absl::InvalidArgumentError(absl::StrCat("tensor ", from.name, " is ", Describe(from),
                                                       ", its rows must be a multiple of twice the ", heads, " heads"));
      }
      tensor.interleaved_heads = heads;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::optional<std::string> GgufTensorName(std::string_view hugging_face) {
  for (const NamePair& pair : kTopNames) {
    if (pair.hugging_face == hugging_face) return std::string(pair.gguf);
  }
  if (!hugging_face.starts_with(kLayersPrefix)) return std::nullopt;
  hugging_face.remove_prefix(std::string_view(kLayersPrefix).size());
  const size_t dot = hugging_face.find('.');
  if (dot == hugging_face.npos) return std::nullopt;
  const std::string layer(hugging_face.substr(0, dot));
  for (const NamePair& pair : kLayerNames) {
    if (pair.hugging_face == hugging_face.substr(dot + 1)) {
      return absl::StrCat("blk.", layer, ".", std::string(pair.gguf));
    }
  }
  return std::nullopt;
}

bool IsGgufQuantized(const Tensor& tensor) {
  const GgufTensorType* type = FindGgufTensorType(tensor.dtype);
  return type != nullptr && type->dequantize != nullptr;
}

bool NeedsConversion(const Tensor& tensor) {
  return tensor.interleaved_heads != 0 || IsGgufQuantized(tensor);
}

int64_t RowInFile(int64_t row, int64_t rows, int interleaved_heads) {
  if (interleaved_heads == 0) return row;
  const int64_t head_rows = rows / interleaved_heads, half = head_rows / 2;
  const int64_t in_head = row % head_rows;
  return row - in_head + in_head % half * 2 + in_head / half;
}

OwnedTensor ConvertGgufTensor(const Tensor& tensor) {
  const GgufTensorType& type = *FindGgufTensorType(tensor.dtype);
  const int64_t rows = tensor.shape.size() < 2 && tensor.interleaved_heads == 0 ? 1 : tensor.shape[0];
  const size_t file_row_bytes = rows == 0 ? 0 : tensor.bytes.size() / rows;
  const size_t blocks = file_row_bytes / type.block_bytes;
  const bool is_quantized = type.dequantize != nullptr;
  const size_t row_bytes = is_quantized ? blocks * type.block_elements * SizeOf(kDequantizedType) : file_row_bytes;
  OwnedTensor result{tensor, std::make_unique_for_overwrite<char[]>(rows * row_bytes)};
  char* to = result.bytes.get();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_file = RowInFile(row, rows, tensor.interleaved_heads);
    const char* from = tensor.bytes.data() + in_file * file_row_bytes;
    if (!is_quantized) {
      std::memcpy(to, from, row_bytes);
      to += row_bytes;
      continue;
    }
    constexpr int kMaxBlockElements = 256;
    float values[kMaxBlockElements];
    for (size_t i = 0; i < blocks; ++i, from += type.block_bytes) {
      type.dequantize(reinterpret_cast<const uint8_t*>(from), values);
      StoreAsDequantized(values, type.block_elements, to);
      to += type.block_elements * SizeOf(kDequantizedType);
    }
  }
  result.tensor.interleaved_heads = 0;
  if (is_quantized) result.tensor.dtype = kDequantizedType == DataType::kFloat16 ? "F16" : "BF16";
  result.tensor.bytes = std::string_view(result.bytes.get(), rows * row_bytes);
  return result;
}

}  // namespace quire
