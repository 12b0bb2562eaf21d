// SPDX-License-Identifier: Apache-2.0

#include "worker/gpu_memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/num_blocks.h"
#include "base/number_text.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/quantized_products.h"
#include "kernels/cuda/rounded_products.h"
#include "kernels/kv_layout.h"
#include "worker/model/fp8.h"

namespace quire {
namespace {

const char* NameOf(WeightWidth width) {
  switch (width) {
    case WeightWidth::kInt8:
      return "int8";
    case WeightWidth::kInt4:
      return "int4";
    case WeightWidth::kFp8:
      return "fp8";
    default:
      return "16 bits";
  }
}

bool IsStoredQuantized(const ModelConfig& config) {
  return WidthOnGpu(config.quantization, Quantization::kNone) != WeightWidth::k16;
}

// Lists what the weights need if they are rounded in the other ways than `rounding` says.
std::string OtherWidths(const ModelConfig& config, WeightRounding rounding) {
  const Quantization chosen = rounding.layers;
  std::vector<std::string> others;
  for (const Quantization layers : {Quantization::kNone, Quantization::kInt8, Quantization::kInt4}) {
    if (layers == chosen) continue;
    rounding.layers = layers;
    others.push_back(absl::StrCat(FormatBytes(WeightBytesOnGpu(config, rounding)), " in ",
                                  NameOf(WidthOnGpu(config.quantization, layers))));
  }
  return absl::StrJoin(others, " and ");
}

}  // namespace

WeightWidth WidthOnGpu(const CheckpointQuantization& stored, Quantization rounding) {
  CheckpointQuantization kept = stored;
  kept.keeps_fp8 = CanKeepFp8(stored.fp8_block);
  return WidthOf(rounding != Quantization::kNone ? rounding : kept.width(), WeightWidth::k16);
}

int64_t WeightBytesOnGpu(const ModelConfig& config, const WeightRounding& rounding) {
  return GpuWeightBytes(MemoryNeedsOf(config), WidthOnGpu(config.quantization, rounding.layers)) +
         (rounding.output ? AddedByRoundedOutput(config, /*plain_bytes=*/2) : 0);
}

absl::Status CheckWeightsFit(const ModelConfig& config, const WeightRounding& rounding, const GpuMemory& memory) {
  const int64_t needed = WeightBytesOnGpu(config, rounding);
  if (needed <= memory.free_bytes) return absl::OkStatus();
  std::string text = absl::StrCat(memory.device, " has ", FormatBytes(memory.total_bytes), " of memory, of which ",
                                  FormatBytes(memory.free_bytes), " are free; the weights need ", FormatBytes(needed),
                                  " in ", NameOf(WidthOnGpu(config.quantization, rounding.layers)));
  if (IsStoredQuantized(config) && rounding.layers == Quantization::kNone) {
    absl::StrAppend(&text, ", as the checkpoint has them");
  } else {
    absl::StrAppend(&text, ", and with another --quantize ", OtherWidths(config, rounding));
  }
  absl::StrAppend(&text, needed <= memory.total_bytes ? "; other processes use the rest of the memory"
                                                      : "; all weights must be in the memory of the GPU");
  return absl::ResourceExhaustedError(text);
}

std::string ExplainGpuMemory(const ModelConfig& config, const WeightRounding& rounding, int block_size,
                             double pool_fraction, const GpuMemory& memory) {
  const MemoryNeeds needs = MemoryNeedsOf(config);
  const int length = std::min(4096, config.max_position_embeddings);
  const int64_t blocks = NumBlocksFor(length, block_size);
  // K and V of int8 are left out where there are no kernels for them.
  std::vector<KvType> kv_types = {KvType::kBFloat16};
  if (config.head_dim <= cuda::kMostInt8HeadDim && block_size >= KvLayout::kUnitTokens) {
    kv_types.push_back(KvType::kInt8);
  }
  const auto block_bytes = [&](KvType type) { return KvBytesPerToken(needs, type) * block_size; };
  const auto name_of = [](KvType type) { return type == KvType::kInt8 ? "int8" : "16 bits"; };
  std::string text = absl::StrCat(
      ModelLine(config, needs), memory.device, " has ", FormatBytes(memory.total_bytes), " of memory, of which ",
      FormatBytes(memory.free_bytes), " are free\n\n",
      absl::StrFormat("%-12s %-12s %-14s %s\n", "K and V", "a token", absl::StrFormat("a block of %d", block_size),
                      absl::StrFormat("a sequence of %d (%d blocks)", length, blocks)));
  std::vector<std::string> kv_names;
  for (const KvType type : kv_types) {
    kv_names.push_back(name_of(type));
    absl::StrAppendFormat(&text, "%-12s %-12s %-14s %s\n", name_of(type), FormatBytes(block_bytes(type) / block_size),
                          FormatBytes(block_bytes(type)), FormatBytes(block_bytes(type) * blocks));
  }
  absl::StrAppendFormat(&text, "\n%-12s %-12s %-14s %s\n", "weights", "memory", "left",
                        absl::StrCat("sequences of ", length, " in ", pool_fraction,
                                     " of what is left, with K and V in ", absl::StrJoin(kv_names, ", ")));
  std::vector<Quantization> widths = {Quantization::kNone};
  if (!IsStoredQuantized(config)) widths.insert(widths.end(), {Quantization::kInt8, Quantization::kInt4});
  for (const Quantization layers : widths) {
    WeightRounding rounded = rounding;
    rounded.layers = layers;
    const int64_t bytes = WeightBytesOnGpu(config, rounded), left = memory.free_bytes - bytes;
    const auto pool_bytes = static_cast<int64_t>(static_cast<double>(std::max<int64_t>(0, left)) * pool_fraction);
    std::vector<int64_t> sequences;
    for (const KvType type : kv_types) sequences.push_back(pool_bytes / (block_bytes(type) * blocks));
    absl::StrAppendFormat(&text, "%-12s %-12s %-14s %s\n", NameOf(WidthOnGpu(config.quantization, layers)),
                          FormatBytes(bytes), left < 0 ? "does not fit" : FormatBytes(left),
                          absl::StrJoin(sequences, ", "));
  }
  absl::StrAppendFormat(
      &text,
      "\nCUDA and the steps take a part of what is left, which the worker measures at its start; beside "
      "weights in int8, int4 or fp8, prompts take up to %s for parts of products, and rounded inputs a byte for each "
      "number\n",
      FormatBytes(int64_t{std::max(cuda::QuantizedProducts::kSliceBytes, cuda::RoundedProducts::kSumBytes)}));
  return text;
}

}  // namespace quire
