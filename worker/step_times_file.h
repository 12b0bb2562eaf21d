// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_STEP_TIMES_FILE_H_
#define QUIRE_WORKER_STEP_TIMES_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/simulated/step_times.h"

namespace quire {

// The times of a simulated device without a file: about as with a model of 7 billion parameters on a GPU.
simulated::StepTimes DefaultStepTimes();

// Parses the contents of a file such as
//   step: 8ms
//   prefill_token: 40us
//   decode_row: 30us
//   context_token: 5ns
// A time that is missing is 0. At least one must be there. Errors are INVALID_ARGUMENT with one line; they call the
// file `name` and name the line, the key, the value and the limit.
absl::StatusOr<simulated::StepTimes> ParseStepTimes(const std::string& name, const std::string& text);

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_TIMES_FILE_H_
