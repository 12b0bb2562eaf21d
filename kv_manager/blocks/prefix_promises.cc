// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_promises.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

namespace quire {
namespace {

// Prompts that agree often do so for thousands of tokens, so whole chunks are compared as memory.
size_t NumEqual(absl::Span<const TokenId> a, absl::Span<const TokenId> b) {
  constexpr size_t kChunk = 64;
  const size_t size = std::min(a.size(), b.size());
  size_t i = 0;
  while (i + kChunk <= size && std::memcmp(&a[i], &b[i], kChunk * sizeof(TokenId)) == 0) i += kChunk;
  while (i < size && a[i] == b[i]) ++i;
  return i;
}

// Negative when `a` comes before `b`, 0 when they are equal, positive when `a` comes after `b`.
int Compare(absl::string_view salt_a, absl::Span<const TokenId> a, absl::string_view salt_b,
            absl::Span<const TokenId> b) {
  if (salt_a != salt_b) return salt_a < salt_b ? -1 : 1;
  const size_t equal = NumEqual(a, b);
  if (equal == a.size() || equal == b.size()) return (a.size() > b.size()) - (a.size() < b.size());
  return a[equal] < b[equal] ? -1 : 1;
}

}  // namespace

bool PrefixPromises::Less::operator()(const Promise& a, const Promise& b) const {
  const int order = Compare(a.salt, a.tokens, b.salt, b.tokens);
  return order == 0 ? a.sequence < b.sequence : order < 0;
}

bool PrefixPromises::Less::operator()(const Promise& a, const Prefix& b) const {
  return Compare(a.salt, a.tokens, b.salt, b.tokens) < 0;
}

void PrefixPromises::Add(SequenceId sequence, absl::string_view salt, absl::Span<const TokenId> tokens) {
  Drop(sequence);
  tokens = WholeBlocks(tokens);
  if (tokens.empty()) return;
  Promise promise{std::string(salt), {tokens.begin(), tokens.end()}, sequence};
  by_sequence_[sequence] = promises_.insert(std::move(promise)).first;
}

void PrefixPromises::Drop(SequenceId sequence) {
  const auto it = by_sequence_.find(sequence);
  if (it == by_sequence_.end()) return;
  promises_.erase(it->second);
  by_sequence_.erase(it);
}

int PrefixPromises::NumTokens(absl::string_view salt, absl::Span<const TokenId> tokens, int limit) const {
  if (promises_.empty()) return 0;
  const Prefix prefix{salt, tokens.first(std::min<size_t>(limit, tokens.size()))};
  const auto next = promises_.lower_bound(prefix);
  int longest = 0;
  if (next != promises_.end()) longest = NumTokensOf(*next, prefix);
  if (next != promises_.begin()) longest = std::max(longest, NumTokensOf(*std::prev(next), prefix));
  return longest;
}

void PrefixPromises::Clear() {
  by_sequence_.clear();
  promises_.clear();
}

absl::Span<const TokenId> PrefixPromises::WholeBlocks(absl::Span<const TokenId> tokens) const {
  return tokens.first(tokens.size() / block_size_ * block_size_);
}

int PrefixPromises::NumTokensOf(const Promise& promise, const Prefix& prefix) const {
  if (promise.salt != prefix.salt) return 0;
  const size_t equal = NumEqual(promise.tokens, prefix.tokens);
  return static_cast<int>(WholeBlocks(prefix.tokens.first(equal)).size());
}

}  // namespace quire
