// SPDX-License-Identifier: Apache-2.0

#include "worker/gpu_memory.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/model/fp8.h"
#include "worker/pool_size.h"

namespace quire {
namespace {

// Returns the bytes that rounding the output matrix adds. They may be negative.
int64_t AddedByRoundedOutput(const ModelConfig& config) {
  const int64_t rounded = int64_t{config.vocab_size} * (config.hidden_size + sizeof(float));  // With scales of rows.
  const int64_t plain = 2 * int64_t{config.vocab_size} * config.hidden_size;
  return config.tie_word_embeddings ? rounded : rounded - plain;  // The embedding stays.
}

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
  switch (rounding != Quantization::kNone ? rounding : kept.width()) {
    case Quantization::kNone:
      return WeightWidth::k16;
    case Quantization::kInt8:
      return WeightWidth::kInt8;
    case Quantization::kInt4:
      return WeightWidth::kInt4;
    case Quantization::kFp8:
      return WeightWidth::kFp8;
  }
  return WeightWidth::k16;
}

int64_t WeightBytesOnGpu(const ModelConfig& config, const WeightRounding& rounding) {
  return GpuWeightBytes(MemoryNeedsOf(config), WidthOnGpu(config.quantization, rounding.layers)) +
         (rounding.output ? AddedByRoundedOutput(config) : 0);
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

}  // namespace quire
