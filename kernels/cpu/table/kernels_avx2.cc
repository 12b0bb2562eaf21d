// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE avx2
#include "kernels/cpu/table/kernel_table_impl.h"

namespace quire::cpu {

const KernelTable& Avx2Kernels() {
  return avx2::kTable;
}

}  // namespace quire::cpu
