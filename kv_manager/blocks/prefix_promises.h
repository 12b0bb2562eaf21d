// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_PREFIX_PROMISES_H_
#define QUIRE_KV_MANAGER_BLOCKS_PREFIX_PROMISES_H_

#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace quire {

// Prefixes that running sequences are about to compute and to cache. A request that begins with such a prefix should
// wait for it instead of computing it again. A promise holds no blocks. Owned by the step-loop thread.
class PrefixPromises {
 public:
  explicit PrefixPromises(int block_size) : block_size_(block_size) {}

  // `sequence` will cache the whole blocks of `tokens`. This replaces its earlier promise.
  void Add(SequenceId sequence, absl::string_view salt, absl::Span<const TokenId> tokens);

  // The sequence has cached what it promised, or will never cache it. Does nothing for a sequence without a promise.
  void Drop(SequenceId sequence);

  // The largest number of tokens, out of the first `limit` of `tokens`, that one sequence has promised in whole blocks.
  // Some of them may already be cached.
  int NumTokens(absl::string_view salt, absl::Span<const TokenId> tokens, int limit) const;

  void Clear();

 private:
  struct Promise {
    std::string salt;
    std::vector<TokenId> tokens;
    SequenceId sequence;
  };

  struct Prefix {
    absl::string_view salt;
    absl::Span<const TokenId> tokens;
  };

  // Sorts by salt and then by tokens, so that the longest match of a prompt is next to the place of the prompt.
  struct Less {
    using is_transparent = void;
    bool operator()(const Promise& a, const Promise& b) const;
    bool operator()(const Promise& a, const Prefix& b) const;
  };

  absl::Span<const TokenId> WholeBlocks(absl::Span<const TokenId> tokens) const;
  int NumTokensOf(const Promise& promise, const Prefix& prefix) const;

  const int block_size_;
  std::set<Promise, Less> promises_;
  absl::flat_hash_map<SequenceId, std::set<Promise, Less>::iterator> by_sequence_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PREFIX_PROMISES_H_
