#ifndef QUIRE_KERNELS_CPU_CPU_FEATURES_H_
#define QUIRE_KERNELS_CPU_CPU_FEATURES_H_

#include <vector>

namespace quire::cpu {

// The instruction sets that the kernels are compiled for. Results of kAvx2 and kAvx512 are equal bit for bit: both work
// on vectors of 16 floats with fused multiply-add. kGeneric is plain C++ and runs anywhere.
enum class Isa { kGeneric, kAvx2, kAvx512 };

const char* Name(Isa isa);

// What this build has kernels for and this machine can run, the best last; never empty.
std::vector<Isa> SupportedIsas();

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_CPU_FEATURES_H_
