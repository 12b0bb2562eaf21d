// SPDX-License-Identifier: Apache-2.0

#include "worker/model/layer_stacks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/model/fp8.h"

namespace quire {
namespace {

bool HasType(const Checkpoint& checkpoint, const std::string& name, const char* dtype) {
  const Tensor* const tensor = checkpoint.Find(name);
  return tensor != nullptr && tensor->dtype == dtype;
}

// Q, K and V are three matrices, or one.
std::vector<MatrixPart> ProjectionParts(const ModelConfig& config, const std::string& prefix) {
  if (config.has_fused_matrices) return {{prefix + "qkv_proj.weight", config.qkv_rows()}};
  const int kv_rows = config.num_kv_heads * config.head_dim;
  return {{prefix + "q_proj.weight", config.num_heads * config.head_dim},
          {prefix + "k_proj.weight", kv_rows},
          {prefix + "v_proj.weight", kv_rows}};
}

std::vector<MatrixPart> GatedParts(const ModelConfig& config, const std::string& prefix) {
  const int width = config.intermediate_size;
  if (!config.has_fused_matrices) return {{prefix + "gate_proj.weight", width}, {prefix + "up_proj.weight", width}};
  const std::string name = prefix + "gate_up_proj.weight";
  return {{name, width, /*tensor_rows=*/2 * width, /*first_row=*/0},
          {name, width, /*tensor_rows=*/2 * width, /*first_row=*/width}};
}

MatrixPart LastMatrix(const ModelConfig& config, const std::string& name, int slice_unit) {
  MatrixPart part = {name, config.hidden_size};
  part.slice_unit = slice_unit;
  return part;
}

}  // namespace

LayerStacks StacksOfLayer(const ModelConfig& config, int layer) {
  const std::string prefix = absl::StrCat(kLayersPrefix, layer, ".");
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  return {.qkv = ProjectionParts(config, attention),
          .attention_output = {LastMatrix(config, attention + "o_proj.weight", config.head_dim)},
          .gate_up = GatedParts(config, mlp),
          .down = {LastMatrix(config, mlp + "down_proj.weight", /*slice_unit=*/1)}};
}

bool IsStoredQuantized(const Checkpoint& checkpoint, const CheckpointQuantization& quantization,
                       const std::string& weight) {
  switch (quantization.format) {
    case CheckpointFormat::kPlain:
      break;
    case CheckpointFormat::kFp8:
      return quantization.keeps_fp8 && HasType(checkpoint, weight, kFp8Type);
    case CheckpointFormat::kInt8:
      return HasType(checkpoint, weight, "I8");
    case CheckpointFormat::kPackQuantized:
      return checkpoint.Find(weight + "_packed") != nullptr;
    case CheckpointFormat::kGptq:
    case CheckpointFormat::kAwq:
      return checkpoint.Find(absl::StrCat(absl::StripSuffix(weight, "weight"), "qweight")) != nullptr;
    case CheckpointFormat::kGgufQ4_0:
      return HasType(checkpoint, weight, "Q4_0");
  }
  return false;
}

PlainStacks CountPlainStacks(const ModelConfig& config, const Checkpoint& checkpoint,
                             const CheckpointQuantization& quantization) {
  const auto is_plain = [&](const std::vector<MatrixPart>& stack) {
    return std::ranges::any_of(
        stack, [&](const MatrixPart& part) { return !IsStoredQuantized(checkpoint, quantization, part.name); });
  };
  PlainStacks count;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const LayerStacks stacks = StacksOfLayer(config, layer);
    count.qkv += is_plain(stacks.qkv) ? 1 : 0;
    count.attention_output += is_plain(stacks.attention_output) ? 1 : 0;
    count.gate_up += is_plain(stacks.gate_up) ? 1 : 0;
    count.down += is_plain(stacks.down) ? 1 : 0;
  }
  return count;
}

}  // namespace quire
