// SPDX-License-Identifier: Apache-2.0

// The kernels for AMX on tiles in memory. They are in place of the kernels on registers in each program that links this
// file.
#define QUIRE_CPU_NAMESPACE software_amx
#define QUIRE_TILE_HEADER "tests/kernels/software_tiles.h"
#include "kernels/cpu/table/kernel_table_amx.h"

namespace quire::cpu {

const KernelTable& AmxKernels() {
  static const KernelTable table = software_amx::MakeTable();
  return table;
}

}  // namespace quire::cpu
