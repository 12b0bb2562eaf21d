// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_WORKER_LIMITS_H_
#define QUIRE_WORKER_WORKER_LIMITS_H_

#include <cstdint>
#include <vector>

#include "base/cache_groups.h"
#include "base/num_blocks.h"

namespace quire {

// The limits of a worker. They are constant while it runs, Describe reports them to the manager, and every plan is
// checked against them.
struct WorkerLimits {
  int max_sequences;        // The number of rows.
  int max_tokens_per_step;  // The limit for the sum over the slices of a plan.
  int max_context_tokens;   // The number of positions of one sequence.
  int vocab_size;
  int block_size;                                   // Tokens per block.
  uint32_t num_blocks;                              // Blocks of the pool.
  uint32_t num_host_blocks = 0;                     // Blocks of the host tier, or 0 if there is none.
  std::vector<CacheGroup> groups = {CacheGroup{}};  // Windows have at least block_size tokens.

  // The number of blocks that `num_tokens` tokens need in group 0, and the number of sheets in another group.
  int NumBlocksFor(int num_tokens) const { return quire::NumBlocksFor(num_tokens, block_size); }
  // The first sheet of a group that a slice which begins at `position` may read.
  int FirstSheet(int group, int position) const { return groups[group].FirstNeeded(position) / block_size; }
};

}  // namespace quire

#endif  // QUIRE_WORKER_WORKER_LIMITS_H_
