// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SHARED_PREFIX_H_
#define QUIRE_KERNELS_SHARED_PREFIX_H_

#include <cstdint>
#include <vector>

#include "kernels/batch.h"

namespace quire {

// Finds the sequences of a step that read the same K and V. Samples, beams, and requests with a common prefix have
// block tables that begin with the same blocks.
//
// Example: the tables are (1 2 5), (1 2 6), (1 2 6 7), (9) with blocks of 64 tokens, and each sequence has one new
// token in its last block. In the order 0, 1, 2, 3 the first three share the tokens [0, 128). Nothing more is shared:
// block 6 is the last block of the second sequence, so it is not before that sequence's query.

// The sequences order[first, first + count) read the same tokens [begin, end).
struct SharedRange {
  int32_t first;
  int32_t count;
  int32_t begin;
  int32_t end;
};

struct SharedPrefixes {
  // The sequences that were considered. Sequences with a common prefix are neighbours.
  std::vector<int32_t> order;
  // Sorted by `first`, wider ranges first. A nested range lies within the range that ends at its start.
  std::vector<SharedRange> ranges;
};

struct SharedPrefixOptions {
  int block_size;
  int max_queries;  // Sequences with more new tokens are left out.
  int window;       // Sliding window; 0 means none. A sequence that no longer sees its first token is left out.
  int unit_tokens;  // Ranges begin and end at multiples of this.
};

// Finds the tokens before their queries that at least two sequences share. Overwrites *prefixes and reuses its memory.
// The batch is in host memory; its token ids, positions and slots are not read. Every block table entry is compared
// once or twice.
class SharedPrefixFinder {
 public:
  void Find(const BatchView& batch, const SharedPrefixOptions& options, SharedPrefixes* prefixes);

 private:
  // Sequences whose tables agree in their first `num_blocks` blocks.
  struct Run {
    int first;
    int count;
    int num_blocks;
    int num_tokens;  // Number of prefix tokens that ranges cover already.
    int depth;
  };

  void Divide(const Run& run, const SharedPrefixOptions& options, SharedPrefixes* prefixes);
  int CommonBlocks(const Run& run) const;
  // Sorts the run by the block at `index`. Sequences without a block there come last.
  void SortByBlock(const Run& run, int index);

  // A sequence and the number of blocks of its table that lie before its queries.
  struct Candidate {
    int32_t sequence;
    int32_t num_blocks;
    const uint32_t* table;
    uint64_t key;  // The block at the current sort index (upper half), then the sequence.
  };
  std::vector<Candidate> candidates_;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_SHARED_PREFIX_H_
