#ifndef QUIRE_KERNELS_SHARED_PREFIX_H_
#define QUIRE_KERNELS_SHARED_PREFIX_H_

#include <cstdint>
#include <vector>

#include "kernels/batch.h"

namespace quire {

// Which sequences of a step read the same K and V: samples, beams, and requests with a common beginning have block
// tables that begin with the same blocks.
//
// Example: tables (1 2 5), (1 2 6), (1 2 6 7), (9) in blocks of 64 tokens, each with one new token in its last block.
// In the order 0, 1, 2, 3 the first three share tokens [0, 128), and nobody shares more: block 6 of the second is its
// last.

// Sequences order[first, first + count) read the same tokens [begin, end).
struct SharedRange {
  int32_t first;
  int32_t count;
  int32_t begin;
  int32_t end;
};

struct SharedPrefixes {
  // The sequences that were looked at. Those that begin alike are neighbours.
  std::vector<int32_t> order;
  // In the order of `first`, the wider one first: a range lies within the one that ends where it begins.
  std::vector<SharedRange> ranges;
};

struct SharedPrefixOptions {
  int block_size;
  int max_queries;  // Sequences with more new tokens are left out.
  int window;       // A sequence whose window has left its first token is left out; 0: none.
  int unit_tokens;  // Ranges begin and end at multiples of this.
};

// Finds what at least two sequences share of the tokens before their queries. Overwrites *prefixes, keeping its memory.
// The batch is in host memory; its token ids, positions and slots are not read. Every block table entry is looked at
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
    int num_tokens;  // Of the prefix that ranges cover already.
    int depth;
  };

  void Divide(const Run& run, const SharedPrefixOptions& options, SharedPrefixes* prefixes);
  int CommonBlocks(const Run& run) const;
  // Sorts the run by the block at `index`; sequences that have none there come last.
  void SortByBlock(const Run& run, int index);

  // A sequence and how many blocks of its table lie before its queries.
  struct Candidate {
    int32_t sequence;
    int32_t num_blocks;
    const uint32_t* table;
    uint64_t key;  // Block by which it is sorted now, then sequence.
  };
  std::vector<Candidate> candidates_;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_SHARED_PREFIX_H_
