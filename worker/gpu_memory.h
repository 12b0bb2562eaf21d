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

// The part of the memory of a GPU beside weights and steps that the pool takes by default. It is high because no other
// process uses the GPU.
inline constexpr double kGpuMemoryFraction = 0.9;

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

// Returns some lines for a person: for each width that a GPU has, or the one in which the checkpoint is quantized, the
// bytes of the weights and how many sequences of 4096 tokens (or of the context, if that is shorter) fit into
// `pool_fraction` of the rest of the free bytes.
std::string ExplainGpuMemory(const ModelConfig& config, const WeightRounding& rounding, int block_size,
                             double pool_fraction, const GpuMemory& memory);

}  // namespace quire

#endif  // QUIRE_WORKER_GPU_MEMORY_H_
