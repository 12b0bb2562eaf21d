// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_POOL_SIZE_H_
#define QUIRE_WORKER_POOL_SIZE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/kv_layout.h"
#include "worker/worker_limits.h"

namespace quire {

// The size of the pool that the operator asks for. At most one of the first three fields is set. If none is, the pool
// takes a fraction of the available memory, but not more than max_sequences sequences of max_context_tokens can fill.
struct PoolRequest {
  std::optional<int64_t> num_blocks = {};
  std::optional<int64_t> bytes = {};
  std::optional<double> memory_fraction = {};  // In (0, 1], of the memory that is left after loading.
  double default_fraction = 0.5;               // Used if none of the three is set.
};

// Returns the number of blocks of the pool, 1 to kMaxWorkerBlocks. It does not read limits.num_blocks. Returns
// RESOURCE_EXHAUSTED when the request is less than one block or more than the available bytes. When it is more than
// kMaxWorkerBlocks, the result is cut to that, or INVALID_ARGUMENT if the request was in blocks or bytes. Errors name
// the flag, its value and the limit.
absl::StatusOr<uint32_t> PlanPool(const PoolRequest& request, const KvLayout& layout, const WorkerLimits& limits,
                                  int64_t available_bytes);

// Returns the number of blocks in a host tier of `bytes`, where 0 bytes mean that there is none. Returns
// RESOURCE_EXHAUSTED when `bytes` is less than one block or more than the available bytes, and INVALID_ARGUMENT when it
// is more than kMaxWorkerBlocks. Errors name the flag, its value and the limit.
absl::StatusOr<uint32_t> PlanHostTier(int64_t bytes, const KvLayout& layout, int64_t available_bytes);

}  // namespace quire

#endif  // QUIRE_WORKER_POOL_SIZE_H_
