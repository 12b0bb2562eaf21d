// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_STEP_OVERHEAD_H_
#define QUIRE_BENCH_STEP_OVERHEAD_H_

#include "client/load/samples.h"

namespace quire {

struct StepOverheadOptions {
  int num_sequences = 256;    // Running sequences, which all decode.
  int context_tokens = 4096;  // Length of each when the measurement begins.
  int block_size = 16;
  int num_steps = 1000;  // Number of measured steps.
};

// The cost of one step for the manager, in seconds of CPU time.
struct StepOverhead {
  Samples plan;
  Samples commit;
  Samples plan_and_commit;
  Samples encode;  // The time from a plan to its message and its bytes.
  Samples decode;  // The time from the bytes of an answer to a checked StepResult.
};

// Measures decode steps of `num_sequences` sequences that fill the pool. The prefix cache is on.
StepOverhead MeasureStepOverhead(const StepOverheadOptions& options);

}  // namespace quire

#endif  // QUIRE_BENCH_STEP_OVERHEAD_H_
