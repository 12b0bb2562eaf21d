// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_CPU_KERNELS_FLAG_H_
#define QUIRE_BENCH_CPU_KERNELS_FLAG_H_

#include "absl/status/statusor.h"
#include "kernels/cpu/isa/cpu_features.h"

namespace quire {

// Returns the set of kernels that the flag --cpu-kernels selects, by default the best one for this machine. Linking
// this file adds the flag to a program. INVALID_ARGUMENT when the machine cannot run the set.
absl::StatusOr<cpu::Isa> CpuKernelsFlag();

}  // namespace quire

#endif  // QUIRE_BENCH_CPU_KERNELS_FLAG_H_
