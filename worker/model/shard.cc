// SPDX-License-Identifier: Apache-2.0

#include "worker/model/shard.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/rank_sums.h"

namespace quire {
namespace {

static_assert(kExpertRanges == kMaxSlices, "as many ranks can divide experts as slices");

absl::Status CheckDivides(int size, int count, const char* what) {
  if (count % size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the model has ", count, " ", what, ", which ", size, " ranks do not divide"));
}

absl::Status CheckKvHeads(const ModelConfig& config, int size) {
  if (size % config.num_kv_heads != 0) return CheckDivides(size, config.num_kv_heads, "KV heads");
  if (config.qk_norm != QkNorm::kWhole || size <= config.num_kv_heads) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the model norms its ", config.num_kv_heads,
                                                 " KV heads together, so they cannot be on ", size,
                                                 " ranks; there may be at most as many ranks as KV heads"));
}

bool HasMlp(const ModelConfig& config) {
  return !std::ranges::all_of(config.layers, &LayerConfig::is_moe);
}

// Returns the first expert of a rank.
int FirstExpert(int num_experts, int rank, int size) {
  int expert = 0;
  while (expert < num_experts && ExpertRange(expert, num_experts) < rank * (kExpertRanges / size)) ++expert;
  return expert;
}

}  // namespace

absl::StatusOr<ModelConfig> ShardOf(const ModelConfig& whole, int rank, int size) {
  if (size < 1 || size > kMaxSlices || !std::has_single_bit(static_cast<unsigned>(size))) {
    return absl::InvalidArgumentError(absl::StrCat("a model on ", size, " ranks; there may be 1, 2, 4 or 8"));
  }
  if (rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " of ", size, " ranks; it must be in [0, ", size, ")"));
  }
  if (size == 1) return whole;
  QUIRE_RETURN_IF_ERROR(CheckDivides(size, whole.num_heads, "heads of attention"));
  QUIRE_RETURN_IF_ERROR(CheckKvHeads(whole, size));
  QUIRE_RETURN_IF_ERROR(CheckDivides(size, whole.hidden_size, "dimensions (hidden_size)"));
  if (HasMlp(whole)) {
    QUIRE_RETURN_IF_ERROR(CheckDivides(size, whole.intermediate_size, "columns in its MLP (intermediate_size)"));
  }
  if (whole.moe.exists() && whole.moe.router.num_experts < size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", whole.moe.router.num_experts, " experts, fewer than the ", size, " ranks"));
  }
  if ((size - 1) * ColumnsOfRank(whole.vocab_size, size) >= whole.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the vocabulary has ", whole.vocab_size, " tokens, too few for ", size, " ranks"));
  }
  ModelConfig config = whole;
  config.shard = {.rank = rank,
                  .size = size,
                  .num_heads = whole.num_heads,
                  .num_kv_heads = whole.num_kv_heads,
                  .intermediate_size = whole.intermediate_size};
  config.num_heads /= size;
  config.num_kv_heads = std::max(1, whole.num_kv_heads / size);
  if (HasMlp(whole)) config.intermediate_size /= size;
  return config;
}

ModelConfig WholeOf(const ModelConfig& config) {
  if (config.shard.size == 1) return config;
  ModelConfig whole = config;
  whole.num_heads = config.shard.num_heads;
  whole.num_kv_heads = config.shard.num_kv_heads;
  whole.intermediate_size = config.shard.intermediate_size;
  whole.shard = {};
  return whole;
}

int FirstKvHead(const ModelConfig& config) {
  return config.shard.rank * config.shard.num_kv_heads / config.shard.size;
}

IndexRange OwnExperts(const ModelConfig& config) {
  const int num_experts = config.moe.router.num_experts;
  const Shard& shard = config.shard;
  return {FirstExpert(num_experts, shard.rank, shard.size), FirstExpert(num_experts, shard.rank + 1, shard.size)};
}

IndexRange OwnVocabulary(const ModelConfig& config) {
  const int share = ColumnsOfRank(config.vocab_size, config.shard.size);
  return {config.shard.rank * share, std::min(config.vocab_size, (config.shard.rank + 1) * share)};
}

}  // namespace quire
