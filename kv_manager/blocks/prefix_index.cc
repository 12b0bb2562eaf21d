// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_index.h"

#include <utility>

#include "absl/hash/hash.h"

namespace quire {

PrefixHash HashOfSalt(absl::string_view salt) {
  return absl::HashOf(salt);
}

PrefixHash ExtendPrefixHash(PrefixHash prefix, absl::Span<const TokenId> block) {
  return absl::HashOf(prefix, block);
}

const std::vector<PrefixHash>& PromptHashes::Of(int block_size) {
  if (block_size == block_size_) return hashes_;
  block_size_ = block_size;
  hashes_.clear();
  PrefixHash prefix = HashOfSalt(salt_);
  for (size_t i = 0; i + block_size <= prompt_.size(); i += block_size) {
    prefix = ExtendPrefixHash(prefix, prompt_.subspan(i, block_size));
    hashes_.push_back(prefix);
  }
  return hashes_;
}

void PrefixIndex::Set(BlockId block, std::optional<PrefixHash> prefix) {
  const MutexLock lock(&mutex_);
  if (const auto it = blocks_.find(block); it != blocks_.end()) {
    Remove(it->second);
    blocks_.erase(it);
  }
  if (!prefix.has_value()) return;
  blocks_.emplace(block, *prefix);
  Add(*prefix);
}

void PrefixIndex::Expect(RequestId request, PromptHashes* prompt) {
  // The hashes are computed before the lock is taken, so that the step loop does not wait for them.
  std::vector<PrefixHash> prefixes = prompt->Of(block_size_);
  const MutexLock lock(&mutex_);
  for (const PrefixHash expected : prefixes) Add(expected);
  expected_.emplace(request, std::move(prefixes));
}

void PrefixIndex::Forget(RequestId request) {
  const MutexLock lock(&mutex_);
  const auto it = expected_.find(request);
  if (it == expected_.end()) return;
  for (const PrefixHash prefix : it->second) Remove(prefix);
  expected_.erase(it);
}

void PrefixIndex::ClearBlocks() {
  const MutexLock lock(&mutex_);
  for (const auto& [block, prefix] : blocks_) Remove(prefix);
  blocks_.clear();
}

int PrefixIndex::NumTokens(PromptHashes* prompt) const {
  const std::vector<PrefixHash>& prefixes = prompt->Of(block_size_);
  const MutexLock lock(&mutex_);
  size_t num_blocks = 0;
  while (num_blocks < prefixes.size() && counts_.contains(prefixes[num_blocks])) ++num_blocks;
  return static_cast<int>(num_blocks) * block_size_;
}

void PrefixIndex::Remove(PrefixHash prefix) {
  const auto it = counts_.find(prefix);
  if (--it->second == 0) counts_.erase(it);
}

}  // namespace quire
