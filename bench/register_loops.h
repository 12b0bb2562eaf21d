// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_REGISTER_LOOPS_H_
#define QUIRE_BENCH_REGISTER_LOOPS_H_

#include <cstdint>
#include <vector>

namespace quire {

// A loop over one instruction that multiplies and adds, with enough independent sums to keep its units busy.
struct RegisterLoop {
  const char* name;
  double operations;  // Multiplications and additions of one iteration.
  void (*run)(int64_t iterations);
};

// Returns the loops that this machine can run. The result is empty where the build has no kernels for the machine's
// instructions.
std::vector<RegisterLoop> SupportedRegisterLoops();

// Runs the loop in `threads` threads at the same time, for `seconds` each, and returns the operations per second of all
// threads together. REQUIRES: threads > 0.
double MeasureRegisterLoop(const RegisterLoop& loop, int threads, double seconds);

}  // namespace quire

#endif  // QUIRE_BENCH_REGISTER_LOOPS_H_
