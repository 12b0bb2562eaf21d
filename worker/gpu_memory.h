// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_GPU_MEMORY_H_
#define QUIRE_WORKER_GPU_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "worker/memory_explanation.h"
#include "worker/model/config.h"
#include "worker/model/quantize.h"

namespace quire {

// The memory of a GPU when nothing of a model is there yet.
struct GpuMemory {
  std::string device;  // The value of --device and what the GPU calls itself, for messages.
  int64_t total_bytes;
  int64_t free_bytes;  // Less than all, because of other processes and of CUDA itself.
};

// Returns how a GPU stores the matrices of the layers of such a checkpoint, rounded in that way.
WeightWidth WidthOnGpu(const CheckpointQuantization& stored, Quantization rounding);

// Returns the bytes of all weights on a GPU, without padding. A load takes a little more, because norms and biases have
// 32 bits there.
int64_t WeightBytesOnGpu(const ModelConfig& config, const WeightRounding& rounding);

// Returns RESOURCE_EXHAUSTED when the weights need more than the free bytes. The error names the GPU, its memory, and
// the bytes of the weights in 16 bits, int8 and int4, or only as they are in the checkpoint if that is quantized.
absl::Status CheckWeightsFit(const ModelConfig& config, const WeightRounding& rounding, const GpuMemory& memory);

}  // namespace quire

#endif  // QUIRE_WORKER_GPU_MEMORY_H_
