// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_SIMT_REPORT_TEST_UTIL_H_
#define QUIRE_TESTS_KERNELS_SIMT_REPORT_TEST_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/simt.h"

// Helpers for tests of reports. Kernels with several places are defined outside of macros, because a macro call is one
// line to the compiler.
namespace quire::simt {

inline LaunchConfig OneWarp(size_t shared_bytes = 1024) {
  return {.shared_bytes = shared_bytes};
}

inline LaunchConfig TwoWarps(size_t shared_bytes = 1024) {
  return {.num_threads = 64, .shared_bytes = shared_bytes};
}

inline std::vector<ProblemKind> Kinds(const LaunchReport& report) {
  std::vector<ProblemKind> kinds;
  for (const Problem& problem : report.problems) kinds.push_back(problem.kind);
  return kinds;
}

// Runs with several seeds, because the problems found must not depend on the order of the threads.
inline std::vector<ProblemKind> KindsOf(LaunchConfig config, const std::function<void()>& body) {
  std::vector<ProblemKind> kinds;
  for (config.seed = 1; config.seed <= 5; ++config.seed) {
    const LaunchReport report = Launch(config, body);
    if (config.seed == 1) kinds = Kinds(report);
    EXPECT_EQ(Kinds(report), kinds) << "seed " << config.seed << "\n" << report.ToString();
  }
  return kinds;
}

// For kernels in which some orders of the threads lead to further problems.
inline void ExpectAlways(ProblemKind kind, LaunchConfig config, const std::function<void()>& body) {
  for (config.seed = 1; config.seed <= 5; ++config.seed) {
    const LaunchReport report = Launch(config, body);
    EXPECT_TRUE(report.Has(kind)) << "seed " << config.seed << "\n" << report.ToString();
  }
}

// Returns the shared memory of a kernel.
inline uint32_t* Words() {
  return reinterpret_cast<uint32_t*>(SharedMemory());
}

}  // namespace quire::simt

#endif  // QUIRE_TESTS_KERNELS_SIMT_REPORT_TEST_UTIL_H_
