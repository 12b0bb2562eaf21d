// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE generic
#include "kernels/cpu/linear/linear_block_kernel.h"
