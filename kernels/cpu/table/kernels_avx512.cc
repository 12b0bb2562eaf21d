// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE avx512
#include "kernels/cpu/table/kernel_table_impl.h"

namespace quire::cpu {

const KernelTable& Avx512Kernels() {
  return avx512::kTable;
}

}  // namespace quire::cpu
