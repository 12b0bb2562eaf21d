// SPDX-License-Identifier: Apache-2.0

// Compiled for sm_90a only: other devices have no instructions for warp groups.

#include "kernels/cuda/compiled_table.h"

namespace quire::cuda {

template <typename K>
const void* Sm90Entry() {
  return reinterpret_cast<const void*>(&RunKernel<K>);
}

template const void* Sm90Entry<AttentionPrefillSm90<Bf16, 64>>();
template const void* Sm90Entry<AttentionPrefillSm90<Bf16, 128>>();
template const void* Sm90Entry<AttentionPrefillSm90<F16, 64>>();
template const void* Sm90Entry<AttentionPrefillSm90<F16, 128>>();

}  // namespace quire::cuda
