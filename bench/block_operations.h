// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_BLOCK_OPERATIONS_H_
#define QUIRE_BENCH_BLOCK_OPERATIONS_H_

#include "client/load/samples.h"

namespace quire {

struct BlockOperationsOptions {
  int num_sequences = 256;    // The sequences that fill the pool.
  int context_tokens = 4096;  // Length of each sequence.
  int block_size = 16;
  int num_rounds = 5;
};

// The cost of one operation of PagedBlockManager, in seconds of CPU time. A sample is the mean of one round.
struct BlockOperations {
  Samples allocate_block;  // Growth of a sequence by a block, as in a decode step.
  Samples fork;            // Fork of a sequence of context_tokens tokens.
  Samples free_fork;       // Free of the fork; no block becomes free.
  Samples publish_block;   // Entry of a full block into the prefix cache.
  Samples find_hit;        // Search for a prompt of context_tokens tokens, all cached except the last block.
  Samples find_miss;       // Search for a prompt with an unknown first token.
  Samples adopt;           // Adoption of the blocks of a cached prompt by a sequence.
  Samples free_last;       // Free of the last owner of context_tokens tokens; the cache keeps the blocks.
  Samples copy_states;     // Copy of the states of all blocks for watchers, while the step loop waits.
  Samples audit;           // Recount and comparison of all references.
  Samples evict_block;     // Growth of a sequence by a block that has to be evicted first.
};

BlockOperations MeasureBlockOperations(const BlockOperationsOptions& options);

}  // namespace quire

#endif  // QUIRE_BENCH_BLOCK_OPERATIONS_H_
