// SPDX-License-Identifier: Apache-2.0

#include "worker/model/layer_check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/number_text.h"
#include "base/status.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

// Divides "model.layers.3.mlp.up_proj.weight" into 3 and "mlp.up_proj.weight". Returns nothing for other names.
std::optional<std::pair<int, std::string>> LayerAndPart(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kLayersPrefix)) return std::nullopt;
  const size_t dot = name.find('.');
  int layer;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(name.substr(0, dot), &layer) || layer < 0) {
    return std::nullopt;
  }
  return std::pair(layer, std::string(name.substr(dot + 1)));
}

// Returns 1 plus the highest number of a layer.
int NumLayersOf(const Checkpoint& checkpoint) {
  int count = 0;
  for (const std::string& name : checkpoint.Names()) {
    if (const auto found = LayerAndPart(name)) count = std::max(count, found->first + 1);
  }
  return count;
}

std::string BothNumbers(const ModelConfig& config, int num_stored) {
  return absl::StrCat("config.json has ", Counted(static_cast<uint64_t>(config.num_layers), "layer"),
                      " (num_hidden_layers), and the weights have ", num_stored);
}

bool IsMoe(const ModelConfig& config, int layer) {
  return layer < config.num_layers && config.layers[layer].is_moe;
}

// Returns the names without their layer of all weights and biases in layers with experts, or in the others.
std::set<std::string> PartsOf(const ModelConfig& config, const Checkpoint& checkpoint, bool is_moe) {
  std::set<std::string> parts;
  for (const std::string& name : checkpoint.Names()) {
    const auto found = LayerAndPart(name);
    if (!found || IsMoe(config, found->first) != is_moe) continue;
    if (absl::EndsWith(found->second, ".weight") || absl::EndsWith(found->second, ".bias")) parts.insert(found->second);
  }
  return parts;
}

}  // namespace

std::string ExtraLayers(const ModelConfig& config, const Checkpoint& checkpoint) {
  const int num_stored = NumLayersOf(checkpoint);
  if (num_stored <= config.num_layers) return "";
  return absl::StrCat(BothNumbers(config, num_stored), "; those from ", kLayersPrefix, config.num_layers,
                      " on are not used");
}

std::string SkippedTensors(const Checkpoint& checkpoint) {
  std::string parts;
  uint64_t sum = 0;
  for (const auto& [part, count] : checkpoint.skipped()) {
    absl::StrAppend(&parts, parts.empty() ? "" : ", ", count, " of ", part);
    sum += static_cast<uint64_t>(count);
  }
  return sum == 0 ? "" : absl::StrCat("left out ", Counted(sum, "tensor"), " beside the text model: ", parts);
}

bool IsOfExtraLayer(const ModelConfig& config, const std::string& name) {
  const auto found = LayerAndPart(name);
  return found && found->first >= config.num_layers;
}

bool HasOwnOutput(const Checkpoint& checkpoint) {
  const Tensor* const embedding = checkpoint.Find(kEmbeddingName);
  const Tensor* const output = checkpoint.Find(kOutputName);
  return embedding != nullptr && output != nullptr &&
         (embedding->dtype != output->dtype || embedding->shape != output->shape || embedding->bytes != output->bytes);
}

const char* EmbeddingName(const ModelConfig& config, const Checkpoint& checkpoint) {
  const bool has_output_only = checkpoint.Find(kEmbeddingName) == nullptr && checkpoint.Find(kOutputName) != nullptr;
  return config.tie_word_embeddings && has_output_only ? kOutputName : kEmbeddingName;
}

absl::Status CheckMayBeLeftOut(const ModelConfig& config, const Tensor& tensor) {
  const absl::string_view name = tensor.name;
  const bool is_of_output = absl::StartsWith(name, "lm_head.");
  if (!is_of_output && !absl::StartsWith(name, kLayersPrefix) && !absl::StartsWith(name, "model.norm.")) {
    return absl::OkStatus();
  }
  const bool is_bias = absl::EndsWith(name, ".bias");
  const bool is_norm = absl::EndsWith(name, "norm.weight");
  if (is_bias && IsAllZero(tensor.bytes)) return absl::OkStatus();
  const bool is_one = is_norm && WeightType(tensor).has_value() &&
                      (config.norms_add_one ? IsAllZero(tensor.bytes) : IsAllOne(tensor.bytes, *WeightType(tensor)));
  if (is_one || (!is_bias && !is_norm && !is_of_output)) return absl::OkStatus();
  return InvalidArgument("tensor ", name, " is ", Describe(tensor), ", and by config.json a model of ",
                         config.architecture, " has no such tensor, which would change its results",
                         is_bias   ? "; attention_bias and mlp_bias say which biases it has"
                         : is_norm ? "; another architecture may have it"
                                   : "; a quantized output matrix is not supported");
}

absl::Status CheckNothingIsMissing(const ModelConfig& config, const Checkpoint& checkpoint) {
  std::vector<std::string> others = {EmbeddingName(config, checkpoint), "model.norm.weight"};
  if (!config.tie_word_embeddings) others.emplace_back(kOutputName);
  for (const std::string& name : others) {
    if (checkpoint.Find(name) == nullptr) return InvalidArgument("tensor ", name, " is missing");
  }
  const int num_stored = NumLayersOf(checkpoint);
  if (num_stored == 0) return InvalidArgument("no tensor has a name that begins with ", kLayersPrefix, "0");
  const std::set<std::string> parts = PartsOf(config, checkpoint, /*is_moe=*/false);
  const std::set<std::string> moe_parts = PartsOf(config, checkpoint, /*is_moe=*/true);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (const std::string& part : IsMoe(config, layer) ? moe_parts : parts) {
      const std::string name = absl::StrCat(kLayersPrefix, layer, ".", part);
      if (checkpoint.Find(name) != nullptr) continue;
      return InvalidArgument("tensor ", name, " is missing; ",
                             layer < num_stored ? "other layers have one" : BothNumbers(config, num_stored));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
