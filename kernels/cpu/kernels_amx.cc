#include "kernels/cpu/kernel_table.h"

namespace quire::cpu {

const KernelTable& AmxKernels() {
  static const KernelTable table = Avx512Kernels();
  return table;
}

}  // namespace quire::cpu
