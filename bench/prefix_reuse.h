// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_PREFIX_REUSE_H_
#define QUIRE_BENCH_PREFIX_REUSE_H_

#include <cstdint>
#include <vector>

#include "client/load/prompt_trace.h"
#include "client/load/samples.h"

namespace quire {

struct CacheFootprint {
  int64_t num_tokens = 0;         // Tokens of all prompts.
  int64_t num_hit_tokens = 0;     // Tokens that an unlimited cache holds already.
  int64_t num_blocks = 0;         // Blocks that such a cache fills.
  int largest_prompt_blocks = 0;  // Blocks of the longest prompt.
};

// Computes the footprint from the ids of the trace, without a cache. A block is a hit when it is full and lies within
// chunks of an earlier prompt. The last token of a prompt is never a hit, because its logits are needed.
CacheFootprint MeasureFootprint(const std::vector<TracedPrompt>& prompts, int block_size);

struct PrefixReuse {
  int64_t num_hit_tokens = 0;  // Tokens of whole blocks.
  int64_t num_evictions = 0;
  int64_t num_too_long = 0;  // Prompts that the pool cannot hold; they are skipped.
  Samples find_seconds;      // CPU time of one FindPrefix.
  Samples serve_seconds;     // CPU time of a prompt's other block operations: adopt, allocate, publish, free.
};

// Sends the prompts one after the other through the block manager's prefix cache.
PrefixReuse MeasurePrefixReuse(const std::vector<TracedPrompt>& prompts, int num_blocks, int block_size);

}  // namespace quire

#endif  // QUIRE_BENCH_PREFIX_REUSE_H_
