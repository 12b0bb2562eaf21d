// SPDX-License-Identifier: Apache-2.0

#include "kernels/shared_prefix.h"

#include <algorithm>
#include <cstring>

namespace quire {
namespace {

// Limit on the nesting depth of prefixes. Beyond it, sequences read for themselves. It bounds the work on odd batches.
constexpr int kMaxDepth = 8;
constexpr uint32_t kNoBlock = 0xffffffff;

}  // namespace

void SharedPrefixFinder::Find(const BatchView& batch, const SharedPrefixOptions& options, SharedPrefixes* prefixes) {
  prefixes->order.clear();
  prefixes->ranges.clear();
  candidates_.clear();
  for (int i = 0; i < batch.num_sequences; ++i) {
    const int num_queries = batch.query_starts[i + 1] - batch.query_starts[i];
    const int first_position = batch.context_lens[i] - num_queries;
    if (num_queries == 0 || num_queries > options.max_queries || first_position < options.unit_tokens) continue;
    if (options.window > 0 && batch.context_lens[i] > options.window) continue;
    candidates_.push_back(
        {i, first_position / options.block_size, batch.block_tables + batch.table_starts[i], /*key=*/0});
  }
  const Run all = {0, int(candidates_.size()), 0, 0, 0};
  SortByBlock(all, 0);
  Divide(all, options, prefixes);
  for (const Candidate& candidate : candidates_) prefixes->order.push_back(candidate.sequence);
}

int SharedPrefixFinder::CommonBlocks(const Run& run) const {
  const Candidate& first = candidates_[run.first];
  int common = first.num_blocks;
  for (int i = run.first + 1; i < run.first + run.count; ++i) {
    common = std::min(common, candidates_[i].num_blocks);
    const uint32_t* begin = first.table + run.num_blocks;
    const uint32_t* other = candidates_[i].table + run.num_blocks;
    // Usually the first two sequences determine how many blocks all of them have in common. Comparing memory is several
    // times faster than searching for the first difference.
    if (memcmp(begin, other, (common - run.num_blocks) * sizeof(*begin)) == 0) continue;
    common = int(std::mismatch(begin, first.table + common, other).first - first.table);
  }
  return common;
}

void SharedPrefixFinder::SortByBlock(const Run& run, int index) {
  const auto begin = candidates_.begin() + run.first;
  for (auto it = begin; it != begin + run.count; ++it) {
    const uint32_t block = index < it->num_blocks ? it->table[index] : kNoBlock;
    it->key = uint64_t{block} << 32 | uint32_t(it->sequence);
  }
  std::sort(begin, begin + run.count, [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
}

// `run` is sorted by the block after its common blocks. Divides it into the runs that agree in that block, too.
void SharedPrefixFinder::Divide(const Run& run, const SharedPrefixOptions& options, SharedPrefixes* prefixes) {
  const int end = run.first + run.count;
  for (int first = run.first; first < end;) {
    int next = first + 1;
    while (next < end && candidates_[next].key >> 32 == candidates_[first].key >> 32) ++next;
    Run part = {first, next - first, run.num_blocks + 1, run.num_tokens, run.depth + 1};
    first = next;
    if (part.count < 2 || candidates_[part.first].num_blocks < part.num_blocks || part.depth > kMaxDepth) continue;
    part.num_blocks = CommonBlocks(part);
    const int num_tokens = part.num_blocks * options.block_size / options.unit_tokens * options.unit_tokens;
    if (num_tokens > part.num_tokens) {
      prefixes->ranges.push_back({part.first, part.count, part.num_tokens, num_tokens});
      part.num_tokens = num_tokens;
    }
    SortByBlock(part, part.num_blocks);
    Divide(part, options, prefixes);
  }
}

}  // namespace quire
