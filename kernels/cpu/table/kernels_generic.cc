// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE generic
#include "kernels/cpu/table/kernel_table_impl.h"

namespace quire::cpu {

const KernelTable& GenericKernels() {
  return generic::kTable;
}

}  // namespace quire::cpu
