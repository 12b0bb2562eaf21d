// SPDX-License-Identifier: Apache-2.0

#include "worker/memory_command.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/gpu_memory.h"
#include "worker/host_memory.h"
#include "worker/memory_explanation.h"
#include "worker/model/hub_cache.h"
#include "worker/model/model.h"

namespace quire {
namespace {

// Returns what the model needs on a GPU.
absl::StatusOr<std::string> ExplainOnGpu(const WorkerOptions& options, const ModelConfig& config,
                                         cuda::DeviceOpener open_device) {
  GpuMemory memory = {.device = absl::StrCat("--device=", options.device), .total_bytes = 0, .free_bytes = 0};
  if (options.gpu_memory) {
    memory = {.device = "a GPU", .total_bytes = *options.gpu_memory, .free_bytes = *options.gpu_memory};
  } else {
    cuda::DeviceOptions device_options;
    device_options.ordinal = *options.gpu;
    device_options.head_dim = config.head_dim;
    std::string why_not;
    const std::unique_ptr<cuda::Device> device = open_device(options.gpu_library, device_options, &why_not);
    if (device == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(memory.device, ": ", why_not, "; --gpu-memory=80GiB describes a GPU that is not here"));
    }
    absl::StrAppend(&memory.device, " (", device->Description(), ")");
    memory.total_bytes = static_cast<int64_t>(device->TotalBytes());
    memory.free_bytes = static_cast<int64_t>(device->FreeBytes());
  }
  return ExplainGpuMemory(config, options.rounding, options.block_size,
                          options.pool.memory_fraction.value_or(kGpuMemoryFraction), memory);
}

}  // namespace

absl::StatusOr<std::string> ExplainMemoryOf(const WorkerOptions& options, cuda::DeviceOpener open_device) {
  QUIRE_ASSIGN_OR_RETURN(const std::string path, ModelPath(options.explain_memory));
  QUIRE_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(path, options.long_context));
  if (options.gpu) return ExplainOnGpu(options, config, open_device);
  return ExplainMemory(config, options.block_size, AvailableHostMemory());
}

}  // namespace quire
