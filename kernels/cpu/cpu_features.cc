#include "kernels/cpu/cpu_features.h"

namespace quire::cpu {

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

// The compiler's run-time check also asks the operating system whether it saves the wide registers.
std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kGeneric};
#if defined(QUIRE_X86_KERNELS)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    isas.push_back(Isa::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      isas.push_back(Isa::kAvx512);
    }
  }
#endif
  return isas;
}

}  // namespace quire::cpu
