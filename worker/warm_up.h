#ifndef QUIRE_WORKER_WARM_UP_H_
#define QUIRE_WORKER_WARM_UP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "worker/model/model.h"
#include "worker/worker_limits.h"

namespace quire {

// Runs steps of 1, 2, 4 and so on to the largest number of tokens over a pool of its own, so that everything a step
// takes is taken (scratch memory, compiled kernels, tuned multiplications), and gives the pool back. Returns the bytes
// that are then left for the real pool, next to an executor. RESOURCE_EXHAUSTED when there is too little memory for the
// steps. limits.num_blocks is not read.
// REQUIRES: the backend has memory of its own (FreeBytes).
absl::StatusOr<int64_t> WarmUp(Backend* backend, const Model& model, const KvLayout& layout, WorkerLimits limits);

}  // namespace quire

#endif  // QUIRE_WORKER_WARM_UP_H_
