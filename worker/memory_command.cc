// SPDX-License-Identifier: Apache-2.0

#include "worker/memory_command.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/layout_check.h"
#include "worker/device_check.h"
#include "worker/gpu_memory.h"
#include "worker/host_memory.h"
#include "worker/memory_explanation.h"
#include "worker/model/hub_cache.h"
#include "worker/model/model.h"
#include "worker/model/shard.h"
#include "worker/planned_limits.h"

namespace quire {
namespace {

// Returns how the weights of the model at `path` are in memory. Fails like LoadModel.
absl::StatusOr<WeightRounding> HeldRounding(const WorkerOptions& options, const std::string& path,
                                            const ModelConfig& config, bool multiplies_fp8, bool multiplies_blocks) {
  WeightRounding held = options.rounding;
  held.keeps_blocks = held.keeps_blocks && multiplies_blocks;
  const absl::StatusOr<CheckpointQuantization> read =
      ReadAs(config.quantization, held.layers, /*multiplies_quantized=*/true, multiplies_fp8);
  if (!read.ok()) return absl::Status(read.status().code(), absl::StrCat(path, ": ", read.status().message()));
  if (held.layers == Quantization::kNone) held.layers = read->width();
  return held;
}

// Weights that are not quantized have the type `plain`.
MemoryChoice ChoiceOf(const WorkerOptions& options, const ModelConfig& config, const WeightRounding& held,
                      DataType plain, const KvLayout& layout) {
  return {.weights =
              absl::StrCat(HeldBlocks(config.quantization, held), HeldWeights(config.quantization, held.layers, plain),
                           held.output ? ", output matrix int8" : ""),
          .weight_bytes = 0,
          .layout = layout,
          .pool = PoolOfRank(options),
          .limits = LimitsWithoutBlocks(options, config),
          .left_bytes = 0};
}

// Returns the lines about this command line, or why a worker with it would end.
std::string Answer(const absl::StatusOr<std::string>& lines) {
  if (lines.ok()) return *lines;
  return absl::StrCat("\nA worker with this command line ends with this error: ", lines.status().message(), "\n");
}

// Opens the GPU, checks that it can run the model with K and V in that layout, and reads its memory.
absl::StatusOr<GpuMemory> OpenGpu(const WorkerOptions& options, const ModelConfig& config, const KvLayout& layout,
                                  cuda::DeviceOpener open_device) {
  const std::string name = absl::StrCat("--device=", options.device);
  cuda::DeviceOptions device_options;
  device_options.ordinal = *options.gpu;
  device_options.head_dim = config.head_dim;
  std::string why_not;
  std::unique_ptr<cuda::Device> device = open_device(options.gpu_library, device_options, &why_not);
  if (device == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": ", why_not, "; --gpu-memory=80GiB describes a GPU that is not here"));
  }
  const GpuMemory memory = {.device = absl::StrCat(name, " (", device->Description(), ")"),
                            .total_bytes = static_cast<int64_t>(device->TotalBytes()),
                            .free_bytes = static_cast<int64_t>(device->FreeBytes())};
  const cuda::CudaBackend backend(std::move(device), {.element = GpuElementFor(config, options.kv_type)});
  QUIRE_RETURN_IF_ERROR(CanRun(backend.Description(), backend.CheckLayout(layout, config.num_heads)));
  return memory;
}

// Returns the memory of the GPU that --gpu-memory describes, after the same checks.
absl::StatusOr<GpuMemory> DescribedGpu(const WorkerOptions& options, const ModelConfig& config,
                                       const KvLayout& layout) {
  QUIRE_RETURN_IF_ERROR(CanRun("a GPU", cuda::CheckLayout(GpuElementFor(config, options.kv_type), layout,
                                                          config.num_heads, cuda::KernelsOfAnyGpu(layout))));
  return GpuMemory{.device = "a GPU", .total_bytes = *options.gpu_memory, .free_bytes = *options.gpu_memory};
}

absl::StatusOr<std::string> ExplainOnGpu(const WorkerOptions& options, const std::string& path,
                                         const ModelConfig& config, cuda::DeviceOpener open_device) {
  QUIRE_RETURN_IF_ERROR(
      CheckShapesForGpu(path, config, options.rounding, &cuda::CudaBackend::Supports, options.device));
  if (const std::string why_not = cuda::WhyNoHeads(config.head_dim); !why_not.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("--device=", options.device, ": ", why_not));
  }
  QUIRE_ASSIGN_OR_RETURN(const WeightRounding held, HeldRounding(options, path, config, /*multiplies_fp8=*/true,
                                                                 /*multiplies_blocks=*/false));
  const DataType element = GpuElementFor(config, options.kv_type);
  const KvLayout layout = LayoutOf(config, options.block_size, options.kv_type.value_or(KvTypeOf(element)));
  QUIRE_ASSIGN_OR_RETURN(const GpuMemory memory, options.gpu_memory ? DescribedGpu(options, config, layout)
                                                                    : OpenGpu(options, config, layout, open_device));
  const double fraction = options.pool.memory_fraction.value_or(kGpuMemoryFraction);
  const std::string text = ExplainGpuMemory(config, options.rounding, options.block_size, fraction, memory);
  const absl::Status fit = CheckWeightsFit(config, options.rounding, memory);
  if (!fit.ok()) return absl::StrCat(text, Answer(fit));
  MemoryChoice choice = ChoiceOf(options, config, held, element, layout);
  choice.weight_bytes = WeightBytesOnGpu(config, options.rounding);
  choice.left_bytes = memory.free_bytes - choice.weight_bytes;
  choice.pool.default_fraction = kGpuMemoryFraction;
  return absl::StrCat(text, Answer(ExplainChoice(choice)));
}

absl::StatusOr<std::string> ExplainOnCpu(const WorkerOptions& options, const std::string& path,
                                         const ModelConfig& config) {
  const std::unique_ptr<Backend> backend = MakeHostBackend(options.threads, options.cpu_kernels);
  const KvLayout layout = LayoutOf(config, options.block_size, options.kv_type.value_or(KvTypeOf(config)));
  QUIRE_RETURN_IF_ERROR(CanRun(backend->Description(), backend->CheckLayout(layout, config.num_heads)));
  QUIRE_ASSIGN_OR_RETURN(const WeightRounding held,
                         HeldRounding(options, path, config, backend->MultipliesFp8(), backend->MultipliesBlocks()));
  const int64_t available_bytes = HostShareOfRank(options, AvailableHostMemory());
  const int64_t swap_bytes = SwapOfRank(options);
  const std::string text = ExplainMemory(config, options.block_size, available_bytes, options.rank_hosts.num_ranks);
  MemoryChoice choice = ChoiceOf(options, config, held, HostWeightType(config), layout);
  choice.weight_bytes = WeightBytesOnCpu(config, held);
  choice.left_bytes = available_bytes - choice.weight_bytes - swap_bytes;
  if (choice.left_bytes >= 0) return absl::StrCat(text, Answer(ExplainChoice(choice)));
  return absl::StrCat(text, "\nwith this command line, the weights in ", choice.weights, " take ",
                      FormatBytes(choice.weight_bytes),
                      swap_bytes > 0 ? absl::StrCat(" and --swap-bytes ", FormatBytes(swap_bytes)) : "",
                      ", which is more than ", options.num_ranks > 1 ? "a rank" : "this machine", " has available\n");
}

}  // namespace

absl::StatusOr<std::string> ExplainMemoryOf(const WorkerOptions& options, cuda::DeviceOpener open_device) {
  if (options.simulation) {
    return InvalidArgument("--device is ", options.device,
                           ", with --explain-memory it must be cpu or cuda: a simulated device holds no weights");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string path, ModelPath(options.explain_memory));
  QUIRE_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(path, options.long_context));
  QUIRE_RETURN_IF_ERROR(CheckLongContext(config, options.long_context));
  absl::StatusOr<ModelConfig> shard = ShardOf(config, /*rank=*/0, options.num_ranks);
  if (!shard.ok()) return AboutFlag("--tp", shard.status());
  config = *std::move(shard);
  DivideLayers(options, &config);
  return options.gpu ? ExplainOnGpu(options, path, config, open_device) : ExplainOnCpu(options, path, config);
}

}  // namespace quire
