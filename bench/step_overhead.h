#ifndef QUIRE_BENCH_STEP_OVERHEAD_H_
#define QUIRE_BENCH_STEP_OVERHEAD_H_

#include "client/load/samples.h"

namespace quire {

struct StepOverheadOptions {
  int num_sequences = 256;    // That run, all decoding.
  int context_tokens = 4096;  // Of each when the measuring begins.
  int block_size = 16;
  int num_steps = 1000;  // Measured ones.
};

// What one step costs the manager, in seconds of CPU time.
struct StepOverhead {
  Samples plan;
  Samples commit;
  Samples plan_and_commit;
  Samples encode;  // A plan to its message and its bytes.
  Samples decode;  // The bytes of an answer to a checked StepResult.
};

// Decode steps of so many sequences, the prefix cache on, in a pool that they fill.
StepOverhead MeasureStepOverhead(const StepOverheadOptions& options);

}  // namespace quire

#endif  // QUIRE_BENCH_STEP_OVERHEAD_H_
