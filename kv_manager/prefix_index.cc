#include "kv_manager/prefix_index.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

namespace quire {

PrefixHash HashOfSalt(absl::string_view salt) {
  return absl::HashOf(salt);
}

PrefixHash ExtendPrefixHash(PrefixHash prefix, absl::Span<const TokenId> block) {
  return absl::HashOf(prefix, block);
}

void PrefixIndex::Set(BlockId block, std::optional<PrefixHash> prefix) {
  const std::lock_guard lock(mutex_);
  if (const auto it = blocks_.find(block); it != blocks_.end()) {
    Remove(it->second);
    blocks_.erase(it);
  }
  if (!prefix.has_value()) return;
  blocks_.emplace(block, *prefix);
  Add(*prefix);
}

void PrefixIndex::Expect(RequestId request, absl::string_view salt, absl::Span<const TokenId> prompt) {
  std::vector<PrefixHash> prefixes = HashesOf(salt, prompt);
  const std::lock_guard lock(mutex_);
  for (const PrefixHash expected : prefixes) Add(expected);
  expected_.emplace(request, std::move(prefixes));
}

void PrefixIndex::Forget(RequestId request) {
  const std::lock_guard lock(mutex_);
  const auto it = expected_.find(request);
  if (it == expected_.end()) return;
  for (const PrefixHash prefix : it->second) Remove(prefix);
  expected_.erase(it);
}

void PrefixIndex::ClearBlocks() {
  const std::lock_guard lock(mutex_);
  for (const auto& [block, prefix] : blocks_) Remove(prefix);
  blocks_.clear();
}

int PrefixIndex::NumTokens(absl::string_view salt, absl::Span<const TokenId> prompt) const {
  const std::vector<PrefixHash> prefixes = HashesOf(salt, prompt);
  const std::lock_guard lock(mutex_);
  const auto missing =
      std::find_if(prefixes.begin(), prefixes.end(), [this](PrefixHash prefix) { return !counts_.contains(prefix); });
  return static_cast<int>(missing - prefixes.begin()) * block_size_;
}

// Of all its prefixes in whole blocks, shortest first. Without the lock: the step loop waits for that.
std::vector<PrefixHash> PrefixIndex::HashesOf(absl::string_view salt, absl::Span<const TokenId> prompt) const {
  std::vector<PrefixHash> prefixes;
  PrefixHash prefix = HashOfSalt(salt);
  for (size_t i = 0; i + block_size_ <= prompt.size(); i += block_size_) {
    prefix = ExtendPrefixHash(prefix, prompt.subspan(i, block_size_));
    prefixes.push_back(prefix);
  }
  return prefixes;
}

void PrefixIndex::Remove(PrefixHash prefix) {
  const auto it = counts_.find(prefix);
  if (--it->second == 0) counts_.erase(it);
}

}  // namespace quire
