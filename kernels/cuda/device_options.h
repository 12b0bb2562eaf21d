// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_DEVICE_OPTIONS_H_
#define QUIRE_KERNELS_CUDA_DEVICE_OPTIONS_H_

#include <chrono>
#include <string>

#include "kernels/cuda/line_writer.h"

namespace quire::cuda {

// The sizes of heads for which the library has kernels.
inline constexpr int kHeadDims[] = {32, 64, 80, 96, 128, 256};

// The options of a GPU.
struct DeviceOptions {
  int ordinal = 0;           // Index among the GPUs that the process sees, in the order of CUDA.
  bool exact = false;        // Use one way to multiply for every number of rows; see matmul.h for the guarantee.
  std::string tuning_cache;  // File that keeps the results of tuning between starts. If it is empty, there is none.
  // Set up each kernel while the one before it ends; see LaunchKernel in cuda_device.cc.
  bool overlaps_launches = false;
  // The size of the heads that will be computed; OpenDevice refuses sizes that are not in kHeadDims.
  int head_dim = 64;
  // On compute capability 9.0, use the kernels that only it can run: for the attention of prompts
  // (attention_prefill_sm90.h) and for inputs of FP8 (kernels_fp8_sm90.cu).
  bool warp_groups = true;
  LineWriter write_line = nullptr;  // Writes the lines of the library; see line_writer.h.
  // A device that has finished nothing for this time, while it has work, ends the process (progress_watch.h). The
  // manager gives up a step after its --step-timeout, 60 s by default, so that the worker's line comes first.
  std::chrono::milliseconds longest_wait{45'000};
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_DEVICE_OPTIONS_H_
