// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/compiled_table.h"

namespace quire::cuda {

const void* SamplingEntry() {
  return reinterpret_cast<const void*>(&RunKernel<SamplingKernel<kSamplingThreads>>);
}

}  // namespace quire::cuda
