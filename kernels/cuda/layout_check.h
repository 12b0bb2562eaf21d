// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_LAYOUT_CHECK_H_
#define QUIRE_KERNELS_CUDA_LAYOUT_CHECK_H_

#include "kernels/backend_status.h"
#include "kernels/kv_layout.h"
#include "kernels/types.h"

namespace quire::cuda {

// Says for which K and V a GPU has kernels, with given heads and blocks.
struct LayoutKernels {
  bool has_16_bits;
  bool has_int8;
};

// Returns the kernels of a GPU that nobody has opened. REQUIRES: WhyNoHeads(layout.head_dim) is empty.
LayoutKernels KernelsOfAnyGpu(const KvLayout& layout);

// Returns whether a GPU that has these kernels can run a model with `num_heads` query heads whose activations are
// `element`. The error names the number and the limit.
BackendStatus CheckLayout(DataType element, const KvLayout& layout, int num_heads, LayoutKernels kernels);

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_LAYOUT_CHECK_H_
