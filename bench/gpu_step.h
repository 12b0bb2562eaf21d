#ifndef QUIRE_BENCH_GPU_STEP_H_
#define QUIRE_BENCH_GPU_STEP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "worker/model/config.h"

namespace quire {

struct GpuStepOptions {
  ModelConfig config;         // Of a model with made-up weights, in bfloat16.
  int num_sequences = 16;     // That decode together.
  int context_tokens = 1024;  // Of each, when the measured steps begin.
  int num_steps = 64;
  bool repeats_layers = true;  // CudaBackendOptions::graphs
  bool overlaps_steps = true;  // A step begins before the one before it is finished.
};

struct GpuStepTime {
  double step_us = 0;      // On the wall, the mean over the steps.
  double host_us = 0;      // Of it, this thread's work to begin and to finish a step.
  int64_t step_bytes = 0;  // Weights, and K and V, that a step has to read.
};

// The shape of Llama 3 8B.
ModelConfig Llama8B();

// Decode steps of the real executor on the device, which it takes.
absl::StatusOr<GpuStepTime> MeasureGpuStep(const GpuStepOptions& options, std::unique_ptr<cuda::Device> device);

// Bytes per second that a copy within the device's memory reads and writes; 0 when there is no room to try.
double CopyBandwidth(cuda::Device* device, size_t bytes);

}  // namespace quire

#endif  // QUIRE_BENCH_GPU_STEP_H_
