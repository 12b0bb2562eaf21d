// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/int8_kv_entries.h"

namespace quire::cuda {

QUIRE_INT8_KV_ENTRIES(Bf16)

}  // namespace quire::cuda
