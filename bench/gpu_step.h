// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_GPU_STEP_H_
#define QUIRE_BENCH_GPU_STEP_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "kernels/linear.h"
#include "worker/model/config.h"
#include "worker/model/model.h"

namespace quire {

struct GpuStepOptions {
  int num_sequences = 16;     // Sequences that decode together.
  int context_tokens = 1024;  // Length of each when the measured steps begin.
  int num_steps = 64;
  bool repeats_layers = true;  // Layers are recorded and repeated.
  bool overlaps_steps = true;  // A step begins before the last one is finished.
};

struct GpuStepTime {
  double step_us = 0;      // Wall-clock time, the mean over the steps.
  double host_us = 0;      // The part in which this thread begins and finishes a step.
  int64_t step_bytes = 0;  // Bytes of weights, K and V that a step has to read.
};

// The shape of Llama 3 8B.
ModelConfig Llama8B();

// Measures decode steps of the real executor on a device, with a model whose weights are random bfloat16 values. The
// model is made once for all measurements.
class GpuStepBench {
 public:
  // With a format, the matrices of the layers are quantized, with a scale for each row, in int4 for every 128 columns,
  // and in FP8 for blocks of 128 x 128 if in_blocks. Embedding and output matrix are not, as in the worker.
  // `rounds_inputs` is the worker's --gpu-int8-inputs and --gpu-fp8-inputs.
  static absl::StatusOr<std::unique_ptr<GpuStepBench>> Create(const ModelConfig& config,
                                                              std::optional<QuantizedFormat> layer_format,
                                                              std::unique_ptr<cuda::Device> device,
                                                              bool rounds_inputs = true, bool in_blocks = false);
  ~GpuStepBench();

  absl::StatusOr<GpuStepTime> Measure(const GpuStepOptions& options);

 private:
  class RecordingSwitch;
  GpuStepBench(const ModelConfig& config, std::unique_ptr<cuda::Device> device, bool rounds_inputs);

  const std::unique_ptr<RecordingSwitch> backend_;
  Model model_;
  int64_t weight_bytes_ = 0;  // Bytes of matrices that a step reads.
};

// Measures the bytes per second that a copy within the device's memory reads and writes. 0 when there is no room to
// try.
double CopyBandwidth(cuda::Device* device, size_t bytes);

}  // namespace quire

#endif  // QUIRE_BENCH_GPU_STEP_H_
