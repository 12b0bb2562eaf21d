// SPDX-License-Identifier: Apache-2.0

// Instantiates on the device the code that CPU and GPU kernels share. A header that is no longer valid device code
// fails to compile here.

#include <cstdint>

#include "kernels/kv_layout.h"
#include "kernels/philox.h"
#include "kernels/softmax_state.h"

namespace quire {

struct DeviceExp {
  __device__ float operator()(float x) const { return __expf(x); }
};

__global__ void UseSharedHeaders(SoftmaxState* states, const KvLayout layout, uint32_t* words) {
  Merge(&states[0], states[1], DeviceExp());
  words[0] = Philox4x32({{threadIdx.x, 0, 0, 0}}, /*key=*/7).word[0];
  words[1] = static_cast<uint32_t>(layout.block_size);
}

}  // namespace quire
