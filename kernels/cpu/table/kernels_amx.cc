// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE amx
#include "kernels/cpu/table/kernel_table_amx.h"

namespace quire::cpu {

const KernelTable& AmxKernels() {
  static const KernelTable table = amx::MakeTable();
  return table;
}

}  // namespace quire::cpu
