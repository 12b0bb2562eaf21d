// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/table/kernel_table.h"

namespace quire::cpu {

const KernelTable& KernelsFor(Isa isa) {
#if defined(QUIRE_X86_KERNELS)
  if (isa == Isa::kAmx) return AmxKernels();
  if (isa == Isa::kAvx512Bf16) return Avx512Bf16Kernels();
  if (isa == Isa::kAvx512Vnni) return Avx512VnniKernels();
  if (isa == Isa::kAvx512) return Avx512Kernels();
  if (isa == Isa::kAvx2) return Avx2Kernels();
#endif
  static_cast<void>(isa);
  return GenericKernels();
}

}  // namespace quire::cpu
