// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/launch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/simt/grid_emulator.h"

namespace quire::simt {

bool LaunchReport::Has(ProblemKind kind) const {
  return std::any_of(problems.begin(), problems.end(), [&](const Problem& problem) { return problem.kind == kind; });
}

std::string LaunchReport::ToString() const {
  std::string text = is_complete ? "" : "the launch did not end\n";
  for (const Problem& problem : problems) {
    text += simt::ToString(problem.place) + ": " + Name(problem.kind) + ": " + problem.text + " (block " +
            std::to_string(problem.block) + ", thread " + std::to_string(problem.thread) + ", " +
            std::to_string(problem.count) + " times)\n";
  }
  return text;
}

LaunchReport Launch(const LaunchConfig& config, const std::function<void()>& body) {
  constexpr int kMaxThreads = 1024;
  if (config.num_threads <= 0 || config.num_threads % kWarpSize != 0 || config.num_threads > kMaxThreads) {
    std::fprintf(stderr, "a block of %d threads: not whole warps, or more than %d\n", config.num_threads, kMaxThreads);
    std::abort();
  }
  return GridEmulator(config, body).Run();
}

}  // namespace quire::simt
