// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_CACHE_GROUPS_H_
#define QUIRE_BASE_CACHE_GROUPS_H_

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace quire {

// Layers whose K and V are kept by one rule. Sheet i of a group holds tokens [i * block_size, (i + 1) * block_size) of
// a sequence for all layers of the group.
struct CacheGroup {
  int window_tokens = 0;     // Tokens that attention reads at a position, the one there included; 0: all before it.
  int blocks_per_sheet = 1;  // Blocks of the pool.

  // Returns the first token that a slice which begins at `position` may read. A draw that the worker has put off is
  // repeated with the token before, so the window of that token counts.
  int FirstNeeded(int position) const { return window_tokens == 0 ? 0 : std::max(0, position - window_tokens); }

  bool operator==(const CacheGroup&) const = default;
};

// The cache groups of a model, and how many blocks of one pool they take. All groups have sheets of block_size tokens.
// Group 0 is the anchor: its sheets are single blocks, and block tables, the prefix cache and labels follow it. A group
// that keeps all tokens has a sheet for every token of a sequence. A group with a window has live sheets only: those
// that the next slice of the sequence may read or writes. A sheet dies when a slice begins at p and all of its tokens
// are before FirstNeeded(p).
//
// Example with sheets of 16 tokens, a group that keeps all and one with a window of 128 tokens, and slices of at most
// 2048 tokens: a sequence of 4096 tokens has 256 sheets in the first group and at most ceil((128 + 2048 - 1) / 16) + 1
// = 137 in the second one.
class CacheGroups {
 public:
  // One group that keeps all tokens.
  explicit CacheGroups(int block_size) : CacheGroups(block_size, {CacheGroup{}}, /*max_slice_tokens=*/1) {}
  // `max_slice_tokens` bounds the slices of sequences; it means nothing without windows. REQUIRES: there is a group,
  // the first one has one block per sheet, and block_size, widths and max_slice_tokens are at least 1.
  CacheGroups(int block_size, absl::Span<const CacheGroup> groups, int max_slice_tokens);

  int block_size() const { return block_size_; }  // Tokens per sheet.
  int size() const { return static_cast<int>(groups_.size()); }
  const CacheGroup& group(int index) const { return groups_[index]; }

  // Returns the first sheet that a slice which begins at `position` may read.
  int FirstSheet(int index, int position) const { return groups_[index].FirstNeeded(position) / block_size_; }
  // Returns the most sheets of the group that a sequence of `num_tokens` tokens has at a time.
  int64_t MaxLiveSheets(int index, int64_t num_tokens) const;

  // Returns the most blocks that a sequence of `num_tokens` tokens holds at a time in all groups.
  int64_t NumBlocks(int64_t num_tokens) const;
  // Returns how many of these stay common to sequences that begin with the same `num_tokens` tokens. Sheets of windows
  // do not stay.
  int64_t NumSharedBlocks(int64_t num_tokens) const;

  bool operator==(const CacheGroups&) const = default;

 private:
  int block_size_;
  int max_slice_tokens_;
  absl::InlinedVector<CacheGroup, 2> groups_;
};

}  // namespace quire

#endif  // QUIRE_BASE_CACHE_GROUPS_H_
