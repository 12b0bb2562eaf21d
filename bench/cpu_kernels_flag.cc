// SPDX-License-Identifier: Apache-2.0

#include "bench/cpu_kernels_flag.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "base/flags.h"

ABSL_FLAG(std::string, cpu_kernels, "auto",
          "generic, avx2, avx512, avx512_vnni, avx512_bf16 or amx; auto: the best of the machine.");

namespace quire {

absl::StatusOr<cpu::Isa> CpuKernelsFlag() {
  std::vector<std::pair<const char*, cpu::Isa>> choices;
  for (const cpu::Isa isa : cpu::SupportedIsas()) choices.emplace_back(cpu::Name(isa), isa);
  if (absl::GetFlag(FLAGS_cpu_kernels) == "auto") return choices.back().second;
  return FlagChoice<cpu::Isa>(FLAGS_cpu_kernels, choices);
}

}  // namespace quire
