// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMULATED_STEP_TIMES_H_
#define QUIRE_KERNELS_SIMULATED_STEP_TIMES_H_

#include <chrono>

#include "kernels/batch.h"

namespace quire::simulated {

// How long the steps of a simulated device take: the sum of these times. Zeros mean "as fast as possible".
struct StepTimes {
  std::chrono::nanoseconds step{0};           // Each step takes it.
  std::chrono::nanoseconds prefill_token{0};  // Each token of a sequence that has several tokens in the step takes it.
  std::chrono::nanoseconds decode_row{0};     // Each sequence that has one token in the step takes it.
  std::chrono::nanoseconds context_token{0};  // Each token in the contexts of all sequences of the step takes it.

  bool operator==(const StepTimes&) const = default;

  std::chrono::nanoseconds Of(const BatchView& batch) const {
    int64_t num_decode_rows = 0;
    int64_t num_context_tokens = 0;
    for (int i = 0; i < batch.num_sequences; ++i) {
      num_decode_rows += batch.query_starts[i + 1] - batch.query_starts[i] == 1;
      num_context_tokens += batch.context_lens[i];
    }
    return step + prefill_token * (batch.num_tokens - num_decode_rows) + decode_row * num_decode_rows +
           context_token * num_context_tokens;
  }
};

}  // namespace quire::simulated

#endif  // QUIRE_KERNELS_SIMULATED_STEP_TIMES_H_
