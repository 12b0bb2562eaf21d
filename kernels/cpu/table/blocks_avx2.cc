// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE avx2
#include "kernels/cpu/linear/linear_block_kernel.h"
