// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_REGISTER_PROBE_H_
#define QUIRE_BENCH_REGISTER_PROBE_H_

#include "bench/register_loops.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"

namespace quire {

// Measures the rate of the instruction that multiplies a kind of weights, with all operands in registers. No kernel can
// be faster. The rate of a guest changes with what the neighbours on the machine do, so a kernel is compared with the
// rate right before and after it, on the same threads.
class RegisterProbe {
 public:
  // The pool must outlive the probe.
  RegisterProbe(cpu::Isa isa, cpu::WeightFormat format, cpu::ThreadPool* pool);

  // Runs for about 10 ms on every thread of the pool, and returns the median of GFLOP/s of all threads together; a
  // multiplication and an addition are two. With one thread, the time is CPU time. Returns 0 if there is no such
  // instruction: the generic kernels, and whole numbers without VNNI, which are multiplied by several instructions.
  double MeasureGflops();

 private:
  cpu::ThreadPool* const pool_;
  RegisterLoop loop_{};  // Without a function if there is no such instruction.
  int count_ = 0;        // Iterations of a run.
};

}  // namespace quire

#endif  // QUIRE_BENCH_REGISTER_PROBE_H_
