// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_EMULATED_ATTENTION_H_
#define QUIRE_TESTS_KERNELS_CUDA_EMULATED_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_args.h"
#include "kernels/simt/launch.h"
#include "tests/kernels/cuda/attention_cases.h"

// The attention kernels of the GPU in the emulator, planned and launched like in the backend.

namespace quire::cuda {

struct EmulatedRun {
  std::vector<float> out;  // [num_tokens, num_heads * head_dim]
  std::vector<simt::LaunchReport> reports;
  int num_prefill_items = 0;
  int num_sm90_items = 0;  // Items of the kernel for compute capability 9.0.
};

struct EmulationOptions {
  uint64_t seed = 1;
  simt::CopyLanding landing = simt::CopyLanding::kLate;
  int num_blocks = 3;    // Number of thread blocks of the grid.
  bool is_sm90 = false;  // Whether there are the kernels for compute capability 9.0.
};

// Attends the queries of the slices. REQUIRES: the type is bfloat16 or float16, and head_dim is 64, 80, 96, 128 or 256,
// which must not be with int8.
EmulatedRun RunAttention(const Shape& shape, const std::vector<Slice>& slices, PagedPool* pool,
                         const EmulationOptions& options = {});

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_EMULATED_ATTENTION_H_
