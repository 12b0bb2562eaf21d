// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_LAUNCHED_KERNELS_H_
#define QUIRE_TESTS_KERNELS_CUDA_LAUNCHED_KERNELS_H_

#include "kernels/cuda/device.h"
#include "kernels/kv_layout.h"

namespace quire::cuda {

// Calls visit(element, head_dim, block_size, kernels) for every table of kernels that the device has. The blocks have
// the tokens of one unit of K and V, or fewer.
template <typename Visit>
void ForEachTable(const Device& device, const Visit& visit) {
  constexpr int kSmallBlock = 4, kLargestHead = 512;
  for (const DataType element : {DataType::kBFloat16, DataType::kFloat16}) {
    for (int head_dim = 8; head_dim <= kLargestHead; head_dim += 8) {
      for (const int block_size : {kSmallBlock, KvLayout::kUnitTokens}) {
        const KernelTable* const kernels = device.FindKernels(element, head_dim, block_size);
        if (kernels != nullptr) visit(element, head_dim, block_size, *kernels);
      }
    }
  }
}

// Remembers which kernels of its tables the device has launched. At the end of the program, after all its tests have
// run, there is a failure for every kernel that no device has launched. When only a part of the tests runs, nothing is
// checked.
void NoteLaunchedKernels(const Device& device);

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_LAUNCHED_KERNELS_H_
