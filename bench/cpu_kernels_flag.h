#ifndef QUIRE_BENCH_CPU_KERNELS_FLAG_H_
#define QUIRE_BENCH_CPU_KERNELS_FLAG_H_

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_features.h"

namespace quire {

// What the flag --cpu-kernels of a program that links this says; the best set of the machine by default.
// INVALID_ARGUMENT when the machine does not have it.
absl::StatusOr<cpu::Isa> CpuKernelsFlag();

}  // namespace quire

#endif  // QUIRE_BENCH_CPU_KERNELS_FLAG_H_
