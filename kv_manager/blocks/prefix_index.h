#ifndef QUIRE_KV_MANAGER_BLOCKS_PREFIX_INDEX_H_
#define QUIRE_KV_MANAGER_BLOCKS_PREFIX_INDEX_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace quire {

// The name of a prefix in whole blocks: a hash of the salt and of every token.
using PrefixHash = uint64_t;

PrefixHash HashOfSalt(absl::string_view salt);
// Of the prefix that goes on for one more block.
PrefixHash ExtendPrefixHash(PrefixHash prefix, absl::Span<const TokenId> block);

// The hashes of all prefixes of a prompt in whole blocks, made once for each size of a block. To hash a long prompt
// takes a while: whoever asks an index under a lock that others wait for does it before. For one thread at a time.
class PromptHashes {
 public:
  // Both are borrowed.
  PromptHashes(absl::string_view salt, absl::Span<const TokenId> prompt) : salt_(salt), prompt_(prompt) {}

  // Shortest prefix first.
  const std::vector<PrefixHash>& Of(int block_size);

 private:
  const absl::string_view salt_;
  const absl::Span<const TokenId> prompt_;
  int block_size_ = 0;  // Of hashes_; 0: there are none yet.
  std::vector<PrefixHash> hashes_;
};

// Which prefixes a worker's pool caches, for placement: told by the thread that owns the cache, asked by those that
// place requests. Prefixes are known by their hashes, so that an answer may be wrong, once in 2^64, and then costs a
// recomputation. Thread-safe.
class PrefixIndex {
 public:
  explicit PrefixIndex(int block_size) : block_size_(block_size) {}

  int block_size() const { return block_size_; }

  // The block holds the end of this prefix from now on, or none.
  void Set(BlockId block, std::optional<PrefixHash> prefix);

  // The request was placed here: its prompt will be cached, if it is not yet. Until it has ended.
  void Expect(RequestId request, PromptHashes* prompt);
  void Forget(RequestId request);

  // Nothing is cached any more. What is expected stays.
  void ClearBlocks();

  // How many of the prompt's tokens are cached or expected, in whole blocks.
  int NumTokens(PromptHashes* prompt) const;

 private:
  void Add(PrefixHash prefix) { ++counts_[prefix]; }
  void Remove(PrefixHash prefix);

  const int block_size_;
  mutable std::mutex mutex_;                     // Guards the rest.
  absl::flat_hash_map<PrefixHash, int> counts_;  // None of them 0.
  absl::flat_hash_map<BlockId, PrefixHash> blocks_;
  absl::flat_hash_map<RequestId, std::vector<PrefixHash>> expected_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PREFIX_INDEX_H_
