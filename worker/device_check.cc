// SPDX-License-Identifier: Apache-2.0

#include "worker/device_check.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cpu/backend.h"
#include "worker/model/model.h"

namespace quire {

KvType KvTypeOf(const ModelConfig& config) {
  if (config.torch_dtype == "bfloat16") return KvType::kBFloat16;
  if (config.torch_dtype == "float16") return KvType::kFloat16;
  return KvType::kFloat32;
}

DataType HostWeightType(const ModelConfig& config) {
  if (config.quantization.format == CheckpointFormat::kFp8) return DataType::kBFloat16;
  return static_cast<DataType>(KvTypeOf(config));
}

DataType GpuElementFor(const ModelConfig& config, std::optional<KvType> kv_type) {
  const KvType type = kv_type && *kv_type != KvType::kInt8 ? *kv_type : KvTypeOf(config);
  return type == KvType::kFloat16 ? DataType::kFloat16 : DataType::kBFloat16;
}

KvLayout LayoutOf(const ModelConfig& config, int block_size, KvType type) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .block_size = block_size,
          .type = type};
}

std::unique_ptr<Backend> MakeHostBackend(int num_threads, std::optional<cpu::Isa> kernels) {
  return kernels ? cpu::MakeCpuBackend(num_threads, *kernels) : MakeCpuBackend(num_threads);
}

absl::Status CheckLongContext(const ModelConfig& config, bool long_context) {
  if (!long_context || config.rope.type == RopeType::kLongRope) return absl::OkStatus();
  return InvalidArgument(
      "--long-context is set, but the rotary embedding of the model has no two sets of factors (longrope)");
}

absl::Status CheckShapesForGpu(const std::string& path, const ModelConfig& config,
                               absl::FunctionRef<bool(OptionalPart)> has, absl::string_view device) {
  constexpr int kMultiple = 8;  // The number of elements that kernels load at once.
  const std::pair<const char*, int> sizes[] = {{"hidden_size", config.hidden_size},
                                               {"intermediate_size", config.intermediate_size},
                                               {"num_attention_heads * head_dim", config.num_heads * config.head_dim}};
  for (const auto& [name, size] : sizes) {
    if (size % kMultiple == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", name, " is ", size, ", on a GPU it must be a multiple of ", kMultiple));
  }
  return CheckParts(config, has, absl::StrCat("--device=", device));
}

absl::Status CanRun(absl::string_view description, const BackendStatus& layout) {
  if (layout.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(description, " cannot run the model: ", layout.message()));
}

}  // namespace quire
