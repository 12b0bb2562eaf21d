// SPDX-License-Identifier: Apache-2.0

#include "worker/model/layer_stacks.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/model/fp8.h"
#include "worker/model/gguf_types.h"
#include "worker/model/layer_check.h"
#include "worker/model/rank_parts.h"
#include "worker/model/shard.h"

namespace quire {
namespace {

bool HasType(const Checkpoint& checkpoint, const std::string& name, const char* dtype) {
  const Tensor* const tensor = checkpoint.Find(name);
  return tensor != nullptr && tensor->dtype == dtype;
}

// Q, K and V are three matrices, or one.
std::vector<MatrixPart> ProjectionParts(const ModelConfig& config, const std::string& prefix) {
  return config.fuses_qkv ? FusedProjectionsOfRank(config, prefix) : ProjectionsOfRank(config, prefix, ".weight");
}

std::vector<MatrixPart> GatedParts(const ModelConfig& config, const std::string& prefix) {
  const int width = config.intermediate_size;
  if (!config.has_gate()) return {RowsOfRank(config, prefix + "up_proj.weight", width)};
  if (!config.fuses_gate_up) {
    return {RowsOfRank(config, prefix + "gate_proj.weight", width),
            RowsOfRank(config, prefix + "up_proj.weight", width)};
  }
  const std::string name = prefix + "gate_up_proj.weight";
  const int whole = width * config.shard.size, first = width * config.shard.rank;
  return {{name, width, /*tensor_rows=*/2 * whole, /*first_row=*/first},
          {name, width, /*tensor_rows=*/2 * whole, /*first_row=*/whole + first}};
}

// Returns the last matrix of an MLP that every rank has.
MatrixPart WholeLastMatrix(const ModelConfig& config, const std::string& name) {
  MatrixPart part = {name, config.hidden_size};
  part.slice_unit = 1;
  return part;
}

ExpertStacks ExpertParts(const ModelConfig& config, const std::string& prefix, int width,
                         const char* suffix = ".weight") {
  const MoeNames& names = *config.moe.names;
  const auto name = [&](const char* part) { return absl::StrCat(prefix, part, suffix); };
  return {.gate_up = {{name(names.gate), width}, {name(names.up), width}},
          .down = {WholeLastMatrix(config, name(names.down))}};
}

}  // namespace

int64_t RowOrder::InFile(int64_t row) const {
  if (head_dim == 0) return row;
  const int64_t in_head = row % head_dim, half = rotary_dim / 2;
  return in_head >= rotary_dim ? row : row - in_head + in_head % half * 2 + in_head / half;
}

RowOrder RotatedRows(const ModelConfig& config) {
  if (!config.rotates_neighbours) return {};
  return {.head_dim = config.head_dim, .rotary_dim = RotaryDim(config.rope, config.head_dim)};
}

LayerStacks StacksOfLayer(const ModelConfig& config, int layer) {
  const std::string prefix = absl::StrCat(kLayersPrefix, layer, ".");
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  LayerStacks stacks = {.qkv = ProjectionParts(config, attention),
                        .attention_output = {LastColumnsOfRank(config, attention + "o_proj.weight", config.head_dim,
                                                               config.num_heads * config.head_dim)},
                        .gate_up = {},
                        .down = {}};
  if (config.layers[layer].is_moe) {
    if (config.moe.shared_width == 0) return stacks;
    const ExpertStacks shared = ExpertParts(config, prefix + config.moe.names->shared, config.moe.shared_width);
    stacks.gate_up = shared.gate_up;
    stacks.down = shared.down;
    return stacks;
  }
  stacks.gate_up = GatedParts(config, mlp);
  stacks.down = {LastColumnsOfRank(config, mlp + "down_proj.weight", /*slice_unit=*/1, config.intermediate_size)};
  return stacks;
}

std::vector<MatrixPart> RouterParts(const ModelConfig& config, int layer) {
  const MoeNames& names = *config.moe.names;
  const std::string prefix = absl::StrCat(kLayersPrefix, layer, ".");
  std::vector<MatrixPart> parts = {{prefix + names.router, config.moe.router.num_experts}};
  if (config.moe.has_shared_gate()) parts.push_back({prefix + names.shared_gate, 1});
  return parts;
}

std::string ExpertPrefix(const ModelConfig& config, int layer, int expert) {
  return absl::StrCat(kLayersPrefix, layer, ".", config.moe.names->experts, expert, ".");
}

ExpertStacks StacksOfExpert(const ModelConfig& config, int layer, int expert) {
  return ExpertParts(config, ExpertPrefix(config, layer, expert), config.moe.width);
}

ExpertStacks BiasesOfExpert(const ModelConfig& config, int layer, int expert) {
  return ExpertParts(config, ExpertPrefix(config, layer, expert), config.moe.width, ".bias");
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

bool IsInBlocks(const Checkpoint& checkpoint, const std::vector<MatrixPart>& stack, bool is_gated) {
  std::optional<BlockType> first;
  for (const MatrixPart& part : stack) {
    const Tensor* const tensor = checkpoint.Find(part.name);
    const std::optional<BlockType> type = tensor == nullptr ? std::nullopt : FindBlockType(tensor->dtype);
    if (!type.has_value()) return false;
    if (is_gated && first.value_or(*type) != *type) return false;
    first = type;
  }
  return true;
}

StoredBlocks CountBlocks(const ModelConfig& config, const Checkpoint& checkpoint) {
  StoredBlocks count;
  const auto add = [&](const std::vector<MatrixPart>& stack, bool is_gated, BlockWeights* blocks) {
    if (!IsInBlocks(checkpoint, stack, is_gated)) return;
    for (const MatrixPart& part : stack) {
      const Tensor& tensor = *checkpoint.Find(part.name);
      const BlockShape shape = ShapeOf(*FindBlockType(tensor.dtype));
      const int64_t weights = part.rows * tensor.shape.back();
      blocks->weights += weights;
      blocks->bytes += weights / shape.columns * shape.packed_bytes;
      count.types.insert(tensor.dtype);
    }
  };
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const LayerStacks stacks = StacksOfLayer(config, layer);
    add(stacks.qkv, /*is_gated=*/false, &count.layers);
    add(stacks.attention_output, /*is_gated=*/false, &count.layers);
    add(stacks.gate_up, config.has_gate(), &count.layers);
    add(stacks.down, /*is_gated=*/false, &count.layers);
    const int num_experts = config.layers[layer].is_moe ? config.moe.router.num_experts : 0;
    for (int expert = 0; expert < num_experts; ++expert) {
      const ExpertStacks of_expert = StacksOfExpert(config, layer, expert);
      add(of_expert.gate_up, /*is_gated=*/true, &count.layers);
      add(of_expert.down, /*is_gated=*/false, &count.layers);
    }
  }
  add({{EmbeddingName(config, checkpoint), config.vocab_size}}, /*is_gated=*/false, &count.embedding);
  if (!config.tie_word_embeddings) add({{kOutputName, config.vocab_size}}, /*is_gated=*/false, &count.output);
  return count;
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
    const bool is_moe = config.layers[layer].is_moe;
    (is_moe ? count.shared_gate_up : count.gate_up) += is_plain(stacks.gate_up) ? 1 : 0;
    (is_moe ? count.shared_down : count.down) += is_plain(stacks.down) ? 1 : 0;
    for (int expert = 0; is_moe && expert < config.moe.router.num_experts; ++expert) {
      const ExpertStacks of_expert = StacksOfExpert(config, layer, expert);
      count.expert_gate_up += is_plain(of_expert.gate_up) ? 1 : 0;
      count.expert_down += is_plain(of_expert.down) ? 1 : 0;
    }
  }
  return count;
}

}  // namespace quire
