// SPDX-License-Identifier: Apache-2.0

// Compiled for sm_90a only: other devices have no kernels for products of rounded rows by weights of FP8.

#include "kernels/cuda/quantized_entries.h"

namespace quire::cuda {

QUIRE_ROUNDED_PRODUCT_ENTRIES_OF(RoundRowsKernel, Bf16, Fp8Numbers)
QUIRE_ROUNDED_PRODUCT_ENTRIES_OF(RoundRowsKernel, F16, Fp8Numbers)
QUIRE_ROUNDED_PRODUCT_ENTRIES_OF(RoundGroupsKernel, Bf16, Fp8BlockNumbers)
QUIRE_ROUNDED_PRODUCT_ENTRIES_OF(RoundGroupsKernel, F16, Fp8BlockNumbers)

}  // namespace quire::cuda
