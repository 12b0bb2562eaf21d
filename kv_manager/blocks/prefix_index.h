// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_PREFIX_INDEX_H_
#define QUIRE_KV_MANAGER_BLOCKS_PREFIX_INDEX_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace quire {

// The name of a prefix in whole blocks: a hash of the salt and of every token.
using PrefixHash = uint64_t;

PrefixHash HashOfSalt(absl::string_view salt);
// The hash of `prefix` followed by the tokens of one more block.
PrefixHash ExtendPrefixHash(PrefixHash prefix, absl::Span<const TokenId> block);

// The hashes of all prefixes of a prompt in whole blocks, computed once for each block size. Hashing a long prompt
// takes a while, so a caller computes them before it takes a lock that other threads wait for. Not thread-safe.
class PromptHashes {
 public:
  // `salt` and `prompt` are borrowed.
  PromptHashes(absl::string_view salt, absl::Span<const TokenId> prompt) : salt_(salt), prompt_(prompt) {}

  // The hashes for blocks of this size, the shortest prefix first. Valid until the next call.
  const std::vector<PrefixHash>& Of(int block_size);

 private:
  const absl::string_view salt_;
  const absl::Span<const TokenId> prompt_;
  int block_size_ = 0;  // The block size of hashes_; 0 when nothing has been computed yet.
  std::vector<PrefixHash> hashes_;
};

// Which prefixes the pool of one worker caches. The thread that owns the cache updates it, and placement reads it from
// other threads. Prefixes are known by their hashes only, so an answer is wrong with a probability of about 2^-64. A
// wrong answer costs a recomputation. Thread-safe.
class PrefixIndex {
 public:
  explicit PrefixIndex(int block_size) : block_size_(block_size) {}

  int block_size() const { return block_size_; }

  // From now on the block ends this prefix, or no prefix.
  void Set(BlockId block, std::optional<PrefixHash> prefix);

  // The request was placed on this worker, so its prompt will be cached soon. It counts as cached until Forget.
  void Expect(RequestId request, PromptHashes* prompt);
  void Forget(RequestId request);

  // Nothing is cached any more. Prompts that are expected stay.
  void ClearBlocks();

  // Returns how many of the prompt's tokens are cached or expected, in whole blocks.
  int NumTokens(PromptHashes* prompt) const;

 private:
  void Add(PrefixHash prefix) QUIRE_REQUIRES(mutex_) { ++counts_[prefix]; }
  void Remove(PrefixHash prefix) QUIRE_REQUIRES(mutex_);

  const int block_size_;
  mutable Mutex mutex_;
  // Says how many blocks end the prefix and how many requests expect it. No count is 0.
  absl::flat_hash_map<PrefixHash, int> counts_ QUIRE_GUARDED_BY(mutex_);
  absl::flat_hash_map<BlockId, PrefixHash> blocks_ QUIRE_GUARDED_BY(mutex_);
  absl::flat_hash_map<RequestId, std::vector<PrefixHash>> expected_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PREFIX_INDEX_H_
