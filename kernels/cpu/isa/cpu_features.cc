// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/isa/cpu_features.h"

#if defined(QUIRE_X86_KERNELS)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire::cpu {

#if defined(QUIRE_X86_KERNELS)
namespace {

// Reads CPUID leaf 1 (Intel SDM volume 2A, table 3-10). The built-in check of clang 14 does not know this feature by
// name.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
}

// Reads CPUID leaf 7 (Intel SDM volume 2A, table 3-8). The built-in check of GCC 12 knows neither feature by name.
bool HasAvx512Bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
}

// Returns whether the machine has tiles with products of bfloat16 and of bytes.
bool HasAmx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAll = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE and AMX-INT8.
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAll) == kAll;
}

// Linux lets a process use the tile registers only on request (arch_prctl(2), "Dynamically enabled features").
bool MayUseTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace
#endif

const char* Name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512_vnni";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

// The compiler's run-time check includes whether the operating system saves the wide registers.
std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kGeneric};
#if defined(QUIRE_X86_KERNELS)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c()) {
    isas.push_back(Isa::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      isas.push_back(Isa::kAvx512);
      if (__builtin_cpu_supports("avx512vnni")) {
        isas.push_back(Isa::kAvx512Vnni);
        if (HasAvx512Bf16()) {
          isas.push_back(Isa::kAvx512Bf16);
          if (HasAmx() && MayUseTiles()) isas.push_back(Isa::kAmx);
        }
      }
    }
  }
#endif
  return isas;
}

}  // namespace quire::cpu
