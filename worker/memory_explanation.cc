// SPDX-License-Identifier: Apache-2.0

#include "worker/memory_explanation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/num_blocks.h"
#include "base/number_text.h"
#include "base/pool_summary.h"
#include "base/status.h"
#include "kernels/cuda/quantized_products.h"
#include "kernels/cuda/rounded_products.h"
#include "kernels/kv_layout.h"
#include "kernels/linear.h"
#include "worker/cache_grouping.h"
#include "worker/device_check.h"
#include "worker/model/fp8.h"
#include "worker/model/shard.h"

namespace quire {
namespace {

constexpr std::pair<WeightWidth, const char*> kWidths[] = {{WeightWidth::k32, "float32"},
                                                           {WeightWidth::k16, "16 bits"},
                                                           {WeightWidth::kInt8, "int8"},
                                                           {WeightWidth::kInt4, "int4"},
                                                           {WeightWidth::kFp8, "fp8"}};
constexpr std::pair<KvType, const char*> kKvTypes[] = {
    {KvType::kFloat32, "float32"}, {KvType::kBFloat16, "16 bits"}, {KvType::kInt8, "int8"}};

constexpr int64_t kScaleBytes = sizeof(float);
constexpr int64_t kZeroPointBytes = 2;  // A byte and its padding.
constexpr int64_t kGpuZeroPointBytes = 1;

// Adds `times` matrices [rows, cols] with scales for groups of columns.
void AddMatrices(int64_t rows, int64_t cols, int times, int64_t int4_group, int64_t block_cols,
                 MatrixNumbers* numbers) {
  numbers->weights += times * rows * cols;
  numbers->rows += times * rows;
  numbers->groups += times * rows * ((cols + int4_group - 1) / int4_group);
  numbers->blocks += times * rows * ((cols + block_cols - 1) / block_cols);
}

// Returns the numbers of the matrices of the layers that are not quantized beside others of this width.
MatrixNumbers PlainBeside(const MemoryNeeds& needs, WeightWidth width) {
  return width == needs.stored_width ? needs.plain : MatrixNumbers();
}

// Returns the bytes of the matrices of the layers. A number of an unquantized one takes `plain_bytes`.
int64_t LayerBytes(const MemoryNeeds& needs, WeightWidth width, int64_t plain_bytes) {
  if (width == WeightWidth::k32) return 4 * needs.layers.weights;
  if (width == WeightWidth::k16) return 2 * needs.layers.weights;
  const MatrixNumbers& all = needs.layers;
  const MatrixNumbers plain = PlainBeside(needs, width);
  const int64_t weights = all.weights - plain.weights, bytes_of_plain = plain_bytes * plain.weights;
  switch (width) {
    case WeightWidth::kInt8:
      return weights + kScaleBytes * (all.rows - plain.rows) + bytes_of_plain;
    case WeightWidth::kFp8:
      return weights + kScaleBytes * (all.blocks - plain.blocks) + bytes_of_plain;
    default:
      return (all.groups - plain.groups) * (needs.int4_group / 2 + kScaleBytes + kZeroPointBytes) + bytes_of_plain;
  }
}

// Returns the bytes of everything else.
int64_t OtherBytes(const MemoryNeeds& needs, int64_t plain_bytes) {
  return plain_bytes * (needs.num_weights - needs.layers.weights) +
         (static_cast<int64_t>(sizeof(float)) - plain_bytes) * needs.router_weights;
}

// A rank has its rows of the output matrix beside the whole embedding.
bool HasOwnOutput(const ModelConfig& config) {
  return !config.tie_word_embeddings || config.shard.size > 1;
}

}  // namespace

MemoryNeeds MemoryNeedsOf(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size, width = config.intermediate_size, layers = config.num_layers;
  const int64_t heads = int64_t{config.num_heads} * config.head_dim;
  const int64_t qk_norms = config.qk_norm == QkNorm::kNone    ? 0
                           : config.qk_norm == QkNorm::kWhole ? heads + int64_t{config.num_kv_heads} * config.head_dim
                                                              : 2 * config.head_dim;
  const int num_norms = config.norms == NormPlacement::kBoth ? 4 : config.is_parallel ? 1 : 2;
  const int64_t norms = num_norms * hidden + qk_norms;
  const int num_wide = config.has_gate() ? 2 : 1;  // Matrices of the MLP that widen.
  const int64_t biases = (config.qkv_bias ? config.qkv_rows() : 0) + (config.attention_output_bias ? hidden : 0) +
                         (config.mlp_bias ? num_wide * width + hidden : 0);
  const auto moe_layers = static_cast<int>(std::ranges::count_if(config.layers, &LayerConfig::is_moe));
  const int dense_layers = config.num_layers - moe_layers;
  const RouterRule& router = config.moe.router;
  const int num_experts = config.moe.exists() ? OwnExperts(config).size() : 0;
  // Of the experts' matrices that are not quantized, a rank is taken to have its share.
  const auto own = [&](int matrices) { return num_experts > 0 ? matrices * num_experts / router.num_experts : 0; };
  const int64_t expert_width = config.moe.width, shared_width = config.moe.shared_width;
  MemoryNeeds needs;
  // A checkpoint of 4 bits keeps its groups, up to the longest ones that products have.
  CheckpointQuantization stored = config.quantization;
  stored.keeps_fp8 = CanKeepFp8(stored.fp8_block);
  const bool is_int4 = stored.width() == Quantization::kInt4 && stored.group > 0;
  needs.int4_group = is_int4 ? std::min(stored.group, kMaxInt4Group) : kMaxInt4Group;
  needs.stored_width = WidthOf(stored.width(), WeightWidth::k16);
  const PlainStacks& plain = stored.plain_stacks;
  const struct {
    int64_t rows, cols;
    int count, num_plain;
  } stacks[] = {{config.qkv_rows(), hidden, config.num_layers, plain.qkv},
                {hidden, heads, config.num_layers, plain.attention_output},
                {num_wide * width, hidden, dense_layers, plain.gate_up},
                {hidden, width, dense_layers, plain.down},
                {2 * expert_width, hidden, moe_layers * num_experts, own(plain.expert_gate_up)},
                {hidden, expert_width, moe_layers * num_experts, own(plain.expert_down)},
                {2 * shared_width, hidden, moe_layers, plain.shared_gate_up},
                {hidden, shared_width, moe_layers, plain.shared_down}};
  for (const auto& [rows, cols, count, num_plain] : stacks) {
    const int64_t block_cols = stored.fp8_block.cols > 0 ? stored.fp8_block.cols : std::max<int64_t>(cols, 1);
    AddMatrices(rows, cols, count, needs.int4_group, block_cols, &needs.layers);
    AddMatrices(rows, cols, num_plain, needs.int4_group, block_cols, &needs.plain);
  }
  needs.router_weights =
      moe_layers * (config.moe.num_logits() * hidden + (config.moe.has_choice_bias() ? router.num_experts : 0));
  const int64_t vocab_rows = config.vocab_size + (HasOwnOutput(config) ? OwnVocabulary(config).size() : 0);
  needs.num_weights =
      needs.layers.weights + needs.router_weights + layers * (norms + biases) + hidden + vocab_rows * hidden;
  needs.num_active_weights =
      needs.num_weights - moe_layers * int64_t{router.num_experts - router.top_k} * 3 * expert_width * hidden;
  needs.kv_heads = 2 * layers * config.num_kv_heads;
  needs.kv_numbers = needs.kv_heads * config.head_dim;
  return needs;
}

WeightWidth WidthOf(Quantization layers, WeightWidth plain) {
  switch (layers) {
    case Quantization::kNone:
      return plain;
    case Quantization::kInt8:
      return WeightWidth::kInt8;
    case Quantization::kInt4:
      return WeightWidth::kInt4;
    case Quantization::kFp8:
      return WeightWidth::kFp8;
  }
  return plain;
}

int64_t WeightBytes(const MemoryNeeds& needs, WeightWidth width) {
  const int plain_bytes = width == WeightWidth::k32 ? 4 : 2;
  return LayerBytes(needs, width, plain_bytes) + OtherBytes(needs, plain_bytes);
}

int64_t GpuWeightBytes(const MemoryNeeds& needs, WeightWidth width) {
  if (width == WeightWidth::k32) return WeightBytes(needs, WeightWidth::k16);
  if (width != WeightWidth::kInt4) return WeightBytes(needs, width);
  const int64_t num_groups = needs.layers.groups - PlainBeside(needs, width).groups;
  return WeightBytes(needs, width) - (kZeroPointBytes - kGpuZeroPointBytes) * num_groups;
}

int64_t KvBytesPerToken(const MemoryNeeds& needs, KvType type) {
  return needs.kv_numbers * static_cast<int64_t>(SizeOf(type)) +
         (type == KvType::kInt8 ? kScaleBytes * needs.kv_heads : 0);
}

int64_t AddedByRoundedOutput(const ModelConfig& config, int plain_bytes) {
  const int64_t rows = OwnVocabulary(config).size();
  const int64_t rounded = rows * (config.hidden_size + kScaleBytes);
  const int64_t plain = rows * plain_bytes * config.hidden_size;
  return HasOwnOutput(config) ? rounded - plain : rounded;  // The embedding stays.
}

namespace {

// Returns the bytes that matrices in blocks take less than those of a type without quantization. Of the layers, a rank
// is taken to have its share.
int64_t SavedByBlocks(const ModelConfig& config, const WeightRounding& held) {
  if (!held.keeps_blocks) return 0;
  const StoredBlocks& blocks = config.quantization.blocks;
  const auto plain_bytes = static_cast<int64_t>(SizeOf(HostWeightType(config)));
  const auto saved = [&](const BlockWeights& of) { return plain_bytes * of.weights - of.bytes; };
  const bool is_rounded = held.layers != Quantization::kNone && held.layers != config.quantization.width();
  const int num_ranks = config.shard.size;
  // A rank has rows of a tied output matrix beside the embedding.
  const BlockWeights& output = config.tie_word_embeddings && num_ranks > 1 ? blocks.embedding : blocks.output;
  return (is_rounded ? 0 : saved(blocks.layers) / num_ranks) + saved(blocks.embedding) +
         (held.output ? 0 : saved(output) / num_ranks);
}

}  // namespace

int64_t WeightBytesOnCpu(const ModelConfig& config, const WeightRounding& held) {
  const MemoryNeeds needs = MemoryNeedsOf(config);
  // Bytes per number of the embedding and the output matrix.
  const auto plain_bytes = static_cast<int>(SizeOf(KvTypeOf(config)));
  const WeightWidth plain = HostWeightType(config) == DataType::kFloat32 ? WeightWidth::k32 : WeightWidth::k16;
  return LayerBytes(needs, WidthOf(held.layers, plain), plain_bytes) + OtherBytes(needs, plain_bytes) +
         (held.output ? AddedByRoundedOutput(config, plain_bytes) : 0) - SavedByBlocks(config, held);
}

std::string HeldBlocks(const CheckpointQuantization& stored, const WeightRounding& held) {
  if (!held.keeps_blocks || stored.blocks.types.empty()) return "";
  return absl::StrCat("blocks of ", absl::StrJoin(stored.blocks.types, ", "), " as in the file, others in ");
}

std::string HeldWeights(const CheckpointQuantization& stored, Quantization held, DataType plain) {
  if (held == Quantization::kFp8) {
    const auto [rows, cols] = stored.fp8_block;
    return absl::StrCat(Name(held),
                        rows == 0 ? " with a scale for each row" : absl::StrCat(" in blocks of ", rows, " x ", cols));
  }
  if (held != Quantization::kNone) return Name(held);
  if (stored.format != CheckpointFormat::kFp8) return Name(plain);
  const std::string why = CanKeepFp8(stored.fp8_block) ? ", which this device does not multiply"
                                                       : absl::StrCat(", whose columns would have to be a multiple of ",
                                                                      kFp8GroupStep, " for products by FP8");
  return absl::StrCat(Name(plain), ", converted from ", Description(stored), why);
}

std::string WeightNumbers(const ModelConfig& config, const MemoryNeeds& needs) {
  const auto billions = [](int64_t number) {
    return absl::StrFormat("%.3f billion", static_cast<double>(number) * 1e-9);
  };
  const std::string all = absl::StrCat(billions(needs.num_weights), " weights");
  if (!config.moe.exists()) return all;
  return absl::StrCat(all, ", ", billions(needs.num_active_weights), " for a token (", config.moe.router.top_k, " of ",
                      config.moe.router.num_experts, " experts)");
}

std::string ModelLine(const ModelConfig& config, const MemoryNeeds& needs) {
  return absl::StrFormat("%s: %s; %s, %s, %s of %d, context %d\n", config.architecture, WeightNumbers(config, needs),
                         Counted(config.num_layers, "layer"), Counted(config.num_heads, "head"),
                         Counted(config.num_kv_heads, "KV head"), config.head_dim, config.max_position_embeddings);
}

std::string ExplainMemory(const ModelConfig& config, int block_size, int64_t available_bytes, int ranks_of_host) {
  const MemoryNeeds needs = MemoryNeedsOf(config);
  const int length = std::min(4096, config.max_position_embeddings);
  const int64_t blocks = NumBlocksFor(length, block_size);
  const ModelConfig whole = WholeOf(config);
  std::string text = absl::StrCat(ModelLine(whole, MemoryNeedsOf(whole)), "this machine has ",
                                  FormatBytes(available_bytes * ranks_of_host), " available");
  if (config.shard.size > 1) {
    absl::StrAppend(&text, ", and each of ", Counted(ranks_of_host, "rank"), " ", FormatBytes(available_bytes),
                    " of it; what follows is for one rank");
  }
  absl::StrAppend(&text, "\n\nweights      memory\n");
  for (const auto& [width, name] : kWidths) {
    absl::StrAppendFormat(&text, "%-12s %s\n", name, FormatBytes(WeightBytes(needs, width)));
  }
  absl::StrAppendFormat(&text, "\n%-12s %-12s %-14s %s\n", "K and V", "a token",
                        absl::StrFormat("a block of %d", block_size),
                        absl::StrFormat("a sequence of %d (%d blocks)", length, blocks));
  for (const auto& [type, name] : kKvTypes) {
    const int64_t token = KvBytesPerToken(needs, type);
    absl::StrAppendFormat(&text, "%-12s %-12s %-14s %s\n", name, FormatBytes(token), FormatBytes(token * block_size),
                          FormatBytes(token * block_size * blocks));
  }
  absl::StrAppendFormat(&text, "\nsequences of %d beside the weights\n%-12s", length, "weights");
  for (const auto& [type, name] : kKvTypes) absl::StrAppendFormat(&text, " %18s", absl::StrCat("K and V in ", name));
  for (const auto& [width, name] : kWidths) {
    absl::StrAppendFormat(&text, "\n%-12s", name);
    const int64_t left = std::max<int64_t>(0, available_bytes - WeightBytes(needs, width));
    for (const auto& [type, kv_name] : kKvTypes) {
      absl::StrAppendFormat(&text, " %18d", left / (KvBytesPerToken(needs, type) * block_size * blocks));
    }
  }
  absl::StrAppendFormat(
      &text,
      "\n\non a GPU, weights in int4 take %s; beside weights in int8, int4 or fp8, prompts take up to %s for parts of "
      "products, and rounded inputs a byte for each number\n",
      FormatBytes(GpuWeightBytes(needs, WeightWidth::kInt4)),
      FormatBytes(int64_t{std::max(cuda::QuantizedProducts::kSliceBytes, cuda::RoundedProducts::kSumBytes)}));
  return text;
}

absl::StatusOr<std::string> ExplainChoice(const MemoryChoice& choice) {
  const KvLayout& layout = choice.layout;
  QUIRE_ASSIGN_OR_RETURN(const uint32_t num_blocks, PlanPool(choice.pool, layout, choice.limits, choice.left_bytes));
  const auto block_bytes = static_cast<int64_t>(layout.block_bytes_all_layers());
  const int length = std::min(4096, choice.limits.max_context_tokens);
  const CacheGroups groups = CacheGroupsOf(choice.limits);
  return absl::StrCat(
      "\nwith this command line\n",
      absl::StrFormat("%-12s %s in %s\n", "weights", FormatBytes(choice.weight_bytes), choice.weights),
      absl::StrFormat("%-12s %s for a sequence of %d, in %s\n", "K and V",
                      FormatBytes(block_bytes * groups.NumBlocks(length)), length, Name(layout.type)),
      absl::StrFormat("%-12s %s, %s\n", "pool", PoolSummary(num_blocks, groups, choice.limits.max_context_tokens),
                      FormatBytes(block_bytes * num_blocks)));
}

}  // namespace quire
