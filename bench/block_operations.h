#ifndef QUIRE_BENCH_BLOCK_OPERATIONS_H_
#define QUIRE_BENCH_BLOCK_OPERATIONS_H_

#include "client/load/samples.h"

namespace quire {

struct BlockOperationsOptions {
  int num_sequences = 256;    // That hold the pool.
  int context_tokens = 4096;  // Of each.
  int block_size = 16;
  int num_rounds = 5;
};

// What PagedBlockManager takes for one operation, in seconds of CPU time; a sample is the mean of one round.
struct BlockOperations {
  Samples allocate_block;  // A sequence grows by a block, as in a decode step that begins one.
  Samples fork;            // Of a sequence of context_tokens tokens.
  Samples free_fork;       // The same dropped again: no block becomes free.
  Samples publish_block;   // A full block enters the prefix cache.
  Samples find_hit;        // A prompt of context_tokens tokens which is cached but for its last block.
  Samples find_miss;       // One that differs from all in its first token.
  Samples adopt;           // The cached prompt's blocks become a sequence's.
  Samples free_last;       // The last owner of context_tokens tokens goes; the cache keeps the blocks.
  Samples copy_states;     // The states of all blocks, for those who look on: the step loop waits for it.
  Samples audit;           // All references are counted anew, and compared.
  Samples evict_block;     // A sequence grows by a block that must be evicted first.
};

BlockOperations MeasureBlockOperations(const BlockOperationsOptions& options);

}  // namespace quire

#endif  // QUIRE_BENCH_BLOCK_OPERATIONS_H_
