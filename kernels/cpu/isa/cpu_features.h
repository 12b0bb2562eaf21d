// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_CPU_FEATURES_H_
#define QUIRE_KERNELS_CPU_ISA_CPU_FEATURES_H_

#include <vector>

namespace quire::cpu {

// The instruction sets for which the kernels are compiled. kAvx2, kAvx512 and kAvx512Vnni give results that are equal
// bit for bit: all work on vectors of 16 floats with fused multiply-add. kAvx512Vnni has faster products of int8
// weights. kAvx512Bf16 and kAmx multiply bfloat16 weights and K/V with bfloat16 instructions, and each gives bits of
// its own there. They do everything else like kAvx512Vnni. kGeneric is plain C++ and runs anywhere.
enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };

const char* Name(Isa isa);

// Returns the instruction sets that this build has kernels for and this machine can run, the best one last. The result
// is never empty. Where the machine has AMX, the call asks the operating system for permission to use the tiles.
std::vector<Isa> SupportedIsas();

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ISA_CPU_FEATURES_H_
