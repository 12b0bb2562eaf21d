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

// How large the operator wants the pool; at most one of the first three. With none of them the pool takes a share of
// the available memory, but not more than max_sequences sequences of max_context_tokens can ever fill.
struct PoolRequest {
  std::optional<int64_t> num_blocks = {};
  std::optional<int64_t> bytes = {};
  std::optional<double> memory_fraction = {};  // (0, 1], of the memory available after the weights were loaded.
  double default_fraction = 0.5;               // Where there is none of those.
};

// The number of blocks, 1 to kMaxWorkerBlocks. limits.num_blocks is not read. A request that makes no block, or more
// bytes than are available, is RESOURCE_EXHAUSTED; more blocks than a manager accepts are INVALID_ARGUMENT when they
// were asked for as such or in bytes, and otherwise cut. The message names flag, value and limit.
absl::StatusOr<uint32_t> PlanPool(const PoolRequest& request, const KvLayout& layout, const WorkerLimits& limits,
                                  int64_t available_bytes);

// The number of blocks of a host tier of `bytes`, 0 for none. Less than a block, or more bytes than are available, is
// RESOURCE_EXHAUSTED; more blocks than a manager accepts are INVALID_ARGUMENT. The message names flag, value and limit.
absl::StatusOr<uint32_t> PlanHostTier(int64_t bytes, const KvLayout& layout, int64_t available_bytes);

// "1073741824", "512MiB", "1.5GiB": bytes, at least 1. Suffixes KiB, MiB, GiB, TiB.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// For people: "1.5 GiB".
std::string FormatBytes(int64_t bytes);

}  // namespace quire

#endif  // QUIRE_WORKER_POOL_SIZE_H_
