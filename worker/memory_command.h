// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MEMORY_COMMAND_H_
#define QUIRE_WORKER_MEMORY_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/open_device.h"
#include "worker/options.h"

namespace quire {

// Returns the text that --explain-memory prints: what the model needs on a CPU, or on a GPU if `options` name one, in
// each precision, and finally what a worker with these options would use. The GPU is described by --gpu-memory, or
// opened by `open_device`. A model that a worker with these options would refuse before it reads weights is refused
// with the same words, except for a lack of memory, which the last line tells. REQUIRES: options.explain_memory is not
// empty.
absl::StatusOr<std::string> ExplainMemoryOf(const WorkerOptions& options, cuda::DeviceOpener open_device);

}  // namespace quire

#endif  // QUIRE_WORKER_MEMORY_COMMAND_H_
