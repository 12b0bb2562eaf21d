// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_PLANNED_LIMITS_H_
#define QUIRE_WORKER_PLANNED_LIMITS_H_

#include <cstdint>

#include "worker/cache_grouping.h"
#include "worker/model/config.h"
#include "worker/options.h"
#include "worker/pool_size.h"
#include "worker/worker_limits.h"

namespace quire {

// Returns the limits of a worker with these options whose pool is not known yet: it has no blocks.
inline WorkerLimits LimitsWithoutBlocks(const WorkerOptions& options, const ModelConfig& config) {
  return {.max_sequences = options.max_sequences,
          .max_tokens_per_step = options.max_tokens_per_step,
          .max_context_tokens = config.max_position_embeddings,
          .vocab_size = config.vocab_size,
          .block_size = options.block_size,
          .num_blocks = 0,
          .groups = config.cache_groups};
}

// Divides the layers of the model into the cache groups that the options ask for.
inline void DivideLayers(const WorkerOptions& options, ModelConfig* config) {
  if (options.divides_by_windows) DivideByWindows(options.block_size, options.max_tokens_per_step, config);
}

// Returns the share of a rank in `bytes` of memory of this host.
inline int64_t HostShareOfRank(const WorkerOptions& options, int64_t bytes) {
  return bytes / options.rank_hosts.num_ranks;
}

// Returns the host tier of one rank in bytes.
inline int64_t SwapOfRank(const WorkerOptions& options) {
  return options.swap_bytes / options.num_ranks;
}

// Returns the pool of one rank, in whose blocks the tokens have a part of their K and V.
inline PoolRequest PoolOfRank(const WorkerOptions& options) {
  PoolRequest pool = options.pool;
  if (pool.bytes) *pool.bytes /= options.num_ranks;
  return pool;
}

}  // namespace quire

#endif  // QUIRE_WORKER_PLANNED_LIMITS_H_
