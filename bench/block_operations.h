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
  Samples allocate_block;  // A sequence grows by a block, as in a decode step.
  Samples fork;            // A sequence of context_tokens tokens is forked.
  Samples free_fork;       // The fork is freed again; no block becomes free.
  Samples publish_block;   // A full block enters the prefix cache.
  Samples find_hit;        // Finds a prompt of context_tokens tokens, all cached except the last block.
  Samples find_miss;       // Looks for a prompt with an unknown first token.
  Samples adopt;           // A sequence adopts the blocks of a cached prompt.
  Samples free_last;       // The last owner of context_tokens tokens is freed; the cache keeps the blocks.
  Samples copy_states;     // Copies the states of all blocks for watchers, while the step loop waits.
  Samples audit;           // Recounts and compares all references.
  Samples evict_block;     // A sequence grows by a block that has to be evicted first.
};

BlockOperations MeasureBlockOperations(const BlockOperationsOptions& options);

}  // namespace quire

#endif  // QUIRE_BENCH_BLOCK_OPERATIONS_H_
