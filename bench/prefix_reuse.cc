// SPDX-License-Identifier: Apache-2.0

#include "bench/prefix_reuse.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/num_blocks.h"
#include "bench/clocks.h"
#include "bench/prompts.h"
#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {

CacheFootprint MeasureFootprint(const std::vector<TracedPrompt>& prompts, int block_size) {
  CacheFootprint footprint;
  absl::flat_hash_map<int, int> cached;  // The end of each chunk's full blocks in tokens.
  for (const TracedPrompt& prompt : prompts) {
    int num_cached = 0;
    for (size_t i = 0; i < prompt.chunks.size(); ++i) {
      const int begin = static_cast<int>(i) * TracedPrompt::kChunkTokens;
      const int end = std::min(begin + TracedPrompt::kChunkTokens, prompt.num_tokens);
      const int full = end - end % block_size;
      int& until = cached.try_emplace(prompt.chunks[i], begin).first->second;
      if (num_cached == begin) num_cached = std::min(until, full);
      if (full <= until) continue;
      footprint.num_blocks += (full - until) / block_size;
      until = full;
    }
    const int limit = prompt.num_tokens - 1;
    footprint.num_tokens += prompt.num_tokens;
    footprint.num_hit_tokens += std::min(num_cached, limit - limit % block_size);
    footprint.largest_prompt_blocks =
        std::max(footprint.largest_prompt_blocks, NumBlocksFor(prompt.num_tokens, block_size));
  }
  return footprint;
}

PrefixReuse MeasurePrefixReuse(const std::vector<TracedPrompt>& prompts, int num_blocks, int block_size) {
  const std::string no_salt;
  PagedBlockManager blocks({.num_blocks = num_blocks, .block_size = block_size});
  PrefixReuse reuse;
  std::vector<BlockCopy> copies;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<TokenId> tokens = TokensOf(prompts[i]);
    const int num_tokens = static_cast<int>(tokens.size());
    const SequenceId sequence{i + 1};
    blocks.BeginStep(StepId{i + 1});
    const double start = ThreadCpuSeconds();
    const PrefixHit hit = blocks.FindPrefix(no_salt, tokens);
    const double found = ThreadCpuSeconds();
    reuse.find_seconds.Add(found - start);
    if (NumBlocksFor(num_tokens, block_size) > num_blocks) {
      ++reuse.num_too_long;
      continue;
    }
    blocks.AdoptPrefix(sequence, no_salt, tokens, hit.num_block_tokens);
    const bool has_room = blocks.Allocate(sequence, hit.num_block_tokens, num_tokens, &copies);
    QUIRE_CHECK(has_room) << num_tokens << " tokens in " << blocks.num_free_blocks() << " free blocks";
    blocks.Publish(sequence, tokens, num_tokens);
    blocks.Free(sequence);
    reuse.serve_seconds.Add(ThreadCpuSeconds() - found);
    reuse.num_hit_tokens += hit.num_block_tokens;
    blocks.OnStepCommitted(StepId{i + 1});
  }
  reuse.num_evictions = blocks.num_evictions();
  return reuse;
}

}  // namespace quire
