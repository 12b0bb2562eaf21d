// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_WARM_UP_H_
#define QUIRE_WORKER_WARM_UP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "worker/executor.h"
#include "worker/model/model.h"
#include "worker/worker_limits.h"

namespace quire {

// Reserves the memory of the backend for all steps within the limits, and runs steps of 1, 2, 4 and so on to the
// largest number of tokens over a pool of its own. So everything that a step may take is taken (scratch memory,
// compiled kernels, tuned multiplications). Gives the pool back. Returns the bytes that are then left for the real
// pool, next to an executor. RESOURCE_EXHAUSTED when there is too little memory for the steps. limits.num_blocks is not
// read. REQUIRES: the backend has memory of its own (FreeBytes).
absl::StatusOr<int64_t> WarmUp(Backend* backend, const Model& model, const KvLayout& layout, WorkerLimits limits);

// Runs decode steps of 1, 2, 4, 8, 16, 24 and so on to 64 sequences, and then of 96, 128 and so on to 256, with
// contexts of one token and, for few sequences, also with longer ones, until `longest_time` has passed. So a backend
// that records layers has recorded these steps before the first request; other backends need no steps. Forgets the
// rows of these steps; blocks keep what was written. REQUIRES: no plan has run.
absl::Status RecordSteps(Backend* backend, const WorkerLimits& limits, absl::Duration longest_time, Executor* executor);

}  // namespace quire

#endif  // QUIRE_WORKER_WARM_UP_H_
