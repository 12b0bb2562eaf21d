#ifndef QUIRE_BENCH_PREFIX_REUSE_H_
#define QUIRE_BENCH_PREFIX_REUSE_H_

#include <cstdint>
#include <vector>

#include "client/load/prompt_trace.h"
#include "client/load/samples.h"

namespace quire {

struct CacheFootprint {
  int64_t num_tokens = 0;         // Of all prompts.
  int64_t num_hit_tokens = 0;     // That a cache which forgets nothing has.
  int64_t num_blocks = 0;         // That such a cache fills.
  int largest_prompt_blocks = 0;  // The most blocks that one prompt takes.
};

// Counts on the ids of the trace, without a cache. A block is a hit when it is full and lies within chunks that an
// earlier prompt had; the last token of a prompt never is one, because its logits are needed.
CacheFootprint MeasureFootprint(const std::vector<TracedPrompt>& prompts, int block_size);

struct PrefixReuse {
  int64_t num_hit_tokens = 0;  // In whole blocks.
  int64_t num_evictions = 0;
  int64_t num_too_long = 0;  // Prompts that the pool cannot hold; they hit nothing and leave nothing.
  Samples find_seconds;      // Of one FindPrefix, CPU time.
  Samples serve_seconds;     // Of all other block work of a prompt: adopt, allocate, publish, free.
};

// The prompts one after the other through the block manager's prefix cache.
PrefixReuse MeasurePrefixReuse(const std::vector<TracedPrompt>& prompts, int num_blocks, int block_size);

}  // namespace quire

#endif  // QUIRE_BENCH_PREFIX_REUSE_H_
