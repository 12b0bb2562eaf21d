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
  return {.num_layers = config.num_slots(),
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

namespace {

absl::Status CheckExpertsForGpu(const std::string& path, const ModelConfig& config, const WeightRounding& rounding) {
  constexpr int kMost = 512, kMostGroups = 32;
  if (!config.moe.exists()) return absl::OkStatus();
  if (config.shard.size > 1) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": the model has experts, which ", config.shard.size,
                                                      " GPUs cannot divide; --tp must be 1, or the device a CPU"));
  }
  const RouterRule& router = config.moe.router;
  if (router.num_experts > kMost || router.num_groups > kMostGroups) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": there are ", router.num_experts, " experts in ",
                                                      router.num_groups, " groups, on a GPU at most ", kMost, " in ",
                                                      kMostGroups));
  }
  if (config.quantization.format == CheckpointFormat::kPlain && rounding.layers == Quantization::kNone) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path,
                   ": the experts would have fewer than 16 bits, and a GPU has no kernels for that; a CPU has "
                   "them"));
}

}  // namespace

absl::Status CheckShapesForGpu(const std::string& path, const ModelConfig& config, const WeightRounding& rounding,
                               absl::FunctionRef<bool(OptionalPart)> has, absl::string_view device) {
  constexpr int kLoaded = 8;  // The number of elements that kernels load at once.
  const int rotary_dim = RotaryDim(config.rope, config.head_dim);
  const struct {
    const char* name;
    int size;
    int multiple;
  } sizes[] = {
      {"hidden_size", config.hidden_size, kLoaded},
      {"intermediate_size", config.intermediate_size, kLoaded},
      {"num_attention_heads * head_dim", config.num_heads * config.head_dim, kLoaded},
      {"the width of an expert", config.moe.width, kLoaded},
      {"the width of the shared expert", config.moe.shared_width, kLoaded},
      // The two numbers that rotate together are half of these dimensions apart.
      {"the number of dimensions of a head that rotate", rotary_dim < config.head_dim ? rotary_dim : 0, 2 * kLoaded}};
  for (const auto& [name, size, multiple] : sizes) {
    if (size % multiple == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": ", name, " is ", size, ", on a GPU it must be a multiple of ", multiple));
  }
  QUIRE_RETURN_IF_ERROR(CheckExpertsForGpu(path, config, rounding));
  return CheckParts(config, has, absl::StrCat("--device=", device));
}

absl::Status CanRun(absl::string_view description, const BackendStatus& layout) {
  if (layout.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(description, " cannot run the model: ", layout.message()));
}

}  // namespace quire
