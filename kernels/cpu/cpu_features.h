#ifndef QUIRE_KERNELS_CPU_CPU_FEATURES_H_
#define QUIRE_KERNELS_CPU_CPU_FEATURES_H_

#include <vector>

namespace quire::cpu {

// The instruction sets that the kernels are compiled for. Results of kAvx2 and kAvx512 are equal bit for bit: both work
// on vectors of 16 floats with fused multiply-add. kAvx512Bf16 and kAmx multiply bfloat16 weights and K/V with the
// machine's bfloat16 instructions, each with bits of its own, and do everything else as kAvx512. kGeneric is plain C++
// and runs anywhere.
enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };

const char* Name(Isa isa);

// What this build has kernels for and this machine can run, the best last; never empty. Asks the operating system for
// the use of the AMX tiles where the machine has them.
std::vector<Isa> SupportedIsas();

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_CPU_FEATURES_H_
