#include "kernels/cpu/kernel_table.h"

namespace quire::cpu {

const KernelTable& Avx512Bf16Kernels() {
  static const KernelTable table = Avx512Kernels();
  return table;
}

}  // namespace quire::cpu
