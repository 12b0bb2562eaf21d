#ifndef QUIRE_BENCH_GPU_STEP_H_
#define QUIRE_BENCH_GPU_STEP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "worker/model/config.h"

namespace quire {

struct GpuStepOptions {
  ModelConfig config;         // The model has random weights in bfloat16.
  int num_sequences = 16;     // Sequences that decode together.
  int context_tokens = 1024;  // Length of each when the measured steps begin.
  int num_steps = 64;
  bool repeats_layers = true;  // CudaBackendOptions::graphs
  bool overlaps_steps = true;  // A step begins before the last one is finished.
};

struct GpuStepTime {
  double step_us = 0;      // Wall-clock time, the mean over the steps.
  double host_us = 0;      // The part in which this thread begins and finishes a step.
  int64_t step_bytes = 0;  // Bytes of weights, K and V that a step has to read.
};

// The shape of Llama 3 8B.
ModelConfig Llama8B();

// Measures decode steps of the real executor on the device. Takes ownership of the device.
absl::StatusOr<GpuStepTime> MeasureGpuStep(const GpuStepOptions& options, std::unique_ptr<cuda::Device> device);

// Measures the bytes per second that a copy within the device's memory reads and writes. 0 when there is no room to
// try.
double CopyBandwidth(cuda::Device* device, size_t bytes);

}  // namespace quire

#endif  // QUIRE_BENCH_GPU_STEP_H_
