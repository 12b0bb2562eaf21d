// SPDX-License-Identifier: Apache-2.0

#include "worker/block_labels.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "base/check.h"

namespace quire {

BlockLabels::BlockLabels(const WorkerLimits& limits)
    : block_size_(limits.block_size),
      labels_(size_t{limits.num_blocks} + limits.num_host_blocks),
      tokens_(labels_.size() * limits.block_size),
      next_(labels_.size(), kNone) {}

void BlockLabels::Clear() {
  if (num_labels_ == 0) return;
  std::fill(labels_.begin(), labels_.end(), Label());
  std::fill(next_.begin(), next_.end(), kNone);
  full_.clear();
  roots_.clear();
  free_roots_.clear();
  root_index_.clear();
  num_labels_ = 0;
}

void BlockLabels::Copy(uint32_t source, uint32_t destination) {
  Remove(destination);
  if (!HasLabel(source)) return;
  labels_[destination] = labels_[source];
  labels_[destination].content = 0;
  ++roots_[labels_[destination].root].num_labels;
  ++num_labels_;
  const absl::Span<const TokenId> tokens = TokensOf(source);
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + size_t{destination} * block_size_);
  if (labels_[destination].num_tokens == block_size_) AddContent(destination);
}

void BlockLabels::Write(absl::string_view root_name, absl::Span<const uint32_t> table, int first_position,
                        absl::Span<const TokenId> tokens) {
  QUIRE_CHECK(!tokens.empty());
  const int end = first_position + static_cast<int>(tokens.size());
  const int first_block = first_position / block_size_;
  const uint32_t root = FindOrAddRoot(root_name);
  // The root stays while this step needs it, also when its last label goes.
  ++roots_[root].num_labels;
  // The slice has read all these blocks, so a label that names the last of them is true only if they are a chain.
  const bool is_known = IsChain(table.first(first_block), root);
  for (int i = first_block; i * block_size_ < end; ++i) {
    const int begin_in_tokens = std::max(0, i * block_size_ - first_position);
    const int first_slot = std::max(0, first_position - i * block_size_);
    const absl::Span<const TokenId> own = tokens.subspan(begin_in_tokens, block_size_ - first_slot);
    WriteBlock(table[i], is_known ? ParentOf(table, i, root) : 0, root, first_slot, own);
  }
  if (--roots_[root].num_labels > 0) return;
  root_index_.erase(roots_[root].name);
  free_roots_.push_back(root);
}

void BlockLabels::WriteUnlabelled(absl::Span<const uint32_t> table, int first_position) {
  for (const uint32_t place : table.subspan(first_position / block_size_)) Remove(place);
}

uint32_t BlockLabels::FindOrAddRoot(absl::string_view name) {
  const auto it = root_index_.find(name);
  if (it != root_index_.end()) return it->second;
  if (free_roots_.empty()) {
    free_roots_.push_back(static_cast<uint32_t>(roots_.size()));
    roots_.emplace_back();
  }
  const uint32_t root = free_roots_.back();
  free_roots_.pop_back();
  roots_[root] = {.name = std::string(name), .number = ++last_number_, .num_labels = 0};
  root_index_.emplace(name, root);
  return root;
}

bool BlockLabels::IsChain(absl::Span<const uint32_t> table, uint32_t root) const {
  for (size_t i = 0; i < table.size(); ++i) {
    const uint64_t parent = ParentOf(table, static_cast<int>(i), root);
    if (parent == 0 || labels_[table[i]].parent != parent || labels_[table[i]].content == 0) return false;
  }
  return true;
}

uint64_t BlockLabels::ParentOf(absl::Span<const uint32_t> table, int index, uint32_t root) const {
  if (index == 0) return roots_[root].number;
  const Label& before = labels_[table[index - 1]];
  return before.root == root ? before.content : 0;
}

void BlockLabels::WriteBlock(uint32_t place, uint64_t parent, uint32_t root, int first_slot,
                             absl::Span<const TokenId> tokens) {
  const bool keeps_slots = labels_[place].parent == parent && labels_[place].num_tokens >= first_slot;
  if (parent == 0 || (first_slot > 0 && !keeps_slots)) {
    Remove(place);
    return;
  }
  const int end = first_slot + static_cast<int>(tokens.size());
  TokenId* const own = tokens_.data() + size_t{place} * block_size_;
  const bool has_same_tokens =
      keeps_slots && labels_[place].num_tokens >= end && std::equal(tokens.begin(), tokens.end(), own + first_slot);
  if (has_same_tokens) return;
  if (keeps_slots) {
    RemoveContent(place);
  } else {
    Remove(place);
    labels_[place] = {.parent = parent, .content = 0, .root = root, .num_tokens = 0};
    ++roots_[root].num_labels;
    ++num_labels_;
  }
  std::copy(tokens.begin(), tokens.end(), own + first_slot);
  labels_[place].num_tokens = end;
  if (end == block_size_) AddContent(place);
}

void BlockLabels::Remove(uint32_t place) {
  if (!HasLabel(place)) return;
  RemoveContent(place);
  Root& root = roots_[labels_[place].root];
  if (--root.num_labels == 0) {
    root_index_.erase(root.name);
    free_roots_.push_back(labels_[place].root);
  }
  labels_[place] = Label();
  --num_labels_;
}

void BlockLabels::AddContent(uint32_t place) {
  const auto [entry, is_new] = full_.try_emplace(HashOf(place), kNone);
  for (uint32_t other = entry->second; other != kNone; other = next_[other]) {
    if (labels_[other].parent != labels_[place].parent || TokensOf(other) != TokensOf(place)) continue;
    labels_[place].content = labels_[other].content;
    break;
  }
  if (labels_[place].content == 0) labels_[place].content = ++last_number_;
  next_[place] = entry->second;
  entry->second = place;
}

void BlockLabels::RemoveContent(uint32_t place) {
  if (labels_[place].content == 0) return;
  const auto entry = full_.find(HashOf(place));
  uint32_t* link = &entry->second;
  while (*link != place) link = &next_[*link];
  *link = next_[place];
  next_[place] = kNone;
  if (entry->second == kNone) full_.erase(entry);
  labels_[place].content = 0;
}

uint64_t BlockLabels::HashOf(uint32_t place) const {
  return absl::HashOf(labels_[place].parent, TokensOf(place));
}

}  // namespace quire
