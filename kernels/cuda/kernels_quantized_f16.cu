// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/quantized_entries.h"

namespace quire::cuda {

QUIRE_QUANTIZED_ENTRIES(F16)

}  // namespace quire::cuda
