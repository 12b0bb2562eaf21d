// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_tree.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace quire {

PrefixTree::PrefixTree(int block_size, BlockPool* pool)
    : block_size_(block_size), pool_(pool), trie_(pool->num_blocks(), block_size), nodes_(pool->num_blocks()) {}

PrefixTree::Hit PrefixTree::Find(absl::string_view salt, absl::Span<const TokenId> tokens, int limit) const {
  QUIRE_CHECK_GE(limit, 0);
  Hit hit;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return hit;
  uint32_t node = root->second;
  tokens = tokens.first(std::min<size_t>(limit, tokens.size()));
  while (!tokens.empty()) {
    const BlockTrie::Match match = trie_.FindChild(node, tokens.first(std::min<size_t>(block_size_, tokens.size())));
    if (match.num_tokens == 0) break;
    hit.num_tokens += match.num_tokens;
    hit.num_evictable += pool_->is_evictable(BlockId{match.node});
    if (match.num_tokens < block_size_) {
      hit.partial_block = BlockId{match.node};
      hit.num_partial_tokens = match.num_tokens;
      break;
    }
    hit.blocks.push_back(BlockId{match.node});
    node = match.node;
    tokens.remove_prefix(block_size_);
  }
  return hit;
}

BlockId PrefixTree::Insert(absl::string_view salt, std::optional<BlockId> parent, absl::Span<const TokenId> tokens,
                           const BlockRef& block, StepId step) {
  const uint32_t above = parent.has_value() ? Value(*parent) : RootOf(salt);
  if (parent.has_value()) {
    QUIRE_CHECK(Contains(*parent)) << *parent << " is not cached";
    QUIRE_CHECK(SaltOf(nodes_[above].root)->first == salt) << *parent << " is cached under another salt";
  }
  QUIRE_CHECK_EQ(tokens.size(), static_cast<size_t>(block_size_));
  const BlockTrie::Match match = trie_.FindChild(above, tokens);
  if (match.num_tokens == block_size_) {
    RaiseStep(match.node, step);
    return BlockId{match.node};
  }
  const uint32_t index = Value(block.id());
  QUIRE_CHECK(!Contains(block.id())) << block.id() << " is cached elsewhere";
  trie_.AddChild(above, index, tokens);
  Node& node = nodes_[index];
  node.block = block.Share();
  node.number = ++num_inserted_;
  node.root = parent.has_value() ? nodes_[above].root : above;
  node.depth = parent.has_value() ? nodes_[above].depth + 1 : 1;
  pool_->SetCached(block.id(), true);
  ++num_blocks_;
  RaiseStep(index, step);
  return block.id();
}

void PrefixTree::Touch(BlockId block, StepId step) {
  QUIRE_CHECK(Contains(block)) << block << " is not cached";
  RaiseStep(Value(block), step);
}

void PrefixTree::Prove(BlockId block) {
  QUIRE_CHECK(Contains(block)) << block << " is not cached";
  for (uint32_t node = Value(block); trie_.IsBlock(node) && !nodes_[node].is_proved; node = trie_.Parent(node)) {
    nodes_[node].is_proved = true;
  }
}

BlockRef PrefixTree::Share(BlockId block) const {
  QUIRE_CHECK(Contains(block)) << block << " is not cached";
  return nodes_[Value(block)].block.Share();
}

std::optional<BlockId> PrefixTree::EvictOne() {
  last_evicted_.clear();
  ListNewlyEvictable();
  while (!evictable_.empty()) {
    std::pop_heap(evictable_.begin(), evictable_.end(), IsEvictedLater);
    const Entry entry = evictable_.back();
    evictable_.pop_back();
    Node& node = nodes_[entry.node];
    node.is_listed = false;
    const BlockId block{entry.node};
    if (!pool_->is_evictable(block)) continue;
    if (node.last_step == entry.step) {
      Remove(entry.node);
      return block;
    }
    List(entry.node);
  }
  QUIRE_CHECK_EQ(num_evictable(), 0);
  return std::nullopt;
}

void PrefixTree::Drop(BlockId block) {
  QUIRE_CHECK(Contains(block)) << block << " is not cached";
  last_evicted_.clear();
  const std::vector<uint32_t> subtree = SubtreeOf(Value(block));
  for (const uint32_t node : subtree) nodes_[node].is_listed = false;
  const auto has_left = [this](const Entry& entry) { return !nodes_[entry.node].is_listed; };
  if (std::erase_if(evictable_, has_left) > 0) std::make_heap(evictable_.begin(), evictable_.end(), IsEvictedLater);
  Remove(Value(block));
}

void PrefixTree::Clear() {
  for (Node& node : nodes_) {
    if (!node.block) continue;
    pool_->SetCached(node.block.id(), false);
    node = Node();
  }
  trie_.Clear();
  roots_.clear();
  salts_.clear();
  evictable_.clear();
  num_blocks_ = 0;
}

// The order of a heap whose front is evicted first. A node lies above its children and is used whenever one of them is,
// so it comes after them.
bool PrefixTree::IsEvictedLater(const Entry& a, const Entry& b) {
  if (a.step != b.step) return a.step > b.step;
  if (a.depth != b.depth) return a.depth < b.depth;
  return a.number > b.number;
}

uint32_t PrefixTree::RootOf(absl::string_view salt) {
  const auto it = roots_.find(salt);
  if (it != roots_.end()) return it->second;
  const uint32_t root = trie_.AddRoot();
  if (root - nodes_.size() >= salts_.size()) salts_.emplace_back();
  SaltOf(root) = roots_.emplace(salt, root).first;
  return root;
}

void PrefixTree::RaiseStep(uint32_t node, StepId step) {
  while (trie_.IsBlock(node) && nodes_[node].last_step < step) {
    nodes_[node].last_step = step;
    node = trie_.Parent(node);
  }
}

void PrefixTree::List(uint32_t index) {
  Node& node = nodes_[index];
  if (node.is_listed) return;
  node.is_listed = true;
  evictable_.push_back({node.last_step, node.number, node.depth, index});
  std::push_heap(evictable_.begin(), evictable_.end(), IsEvictedLater);
}

void PrefixTree::ListNewlyEvictable() {
  pool_->TakeNewlyEvictable(&newly_evictable_);
  for (BlockId block : newly_evictable_) {
    if (pool_->is_evictable(block)) List(Value(block));
  }
}

// Parents come before children.
std::vector<uint32_t> PrefixTree::SubtreeOf(uint32_t node) const {
  std::vector<uint32_t> subtree = {node};
  for (size_t i = 0; i < subtree.size(); ++i) trie_.AppendChildren(subtree[i], &subtree);
  return subtree;
}

// Removes the node and all nodes below it. None of them is listed: when a node is evicted, their turns came before.
void PrefixTree::Remove(uint32_t node) {
  if (!trie_.HasChildren(node)) {
    RemoveLeaf(node);
    return;
  }
  std::vector<uint32_t> subtree = SubtreeOf(node);
  for (; !subtree.empty(); subtree.pop_back()) RemoveLeaf(subtree.back());
}

void PrefixTree::RemoveLeaf(uint32_t index) {
  QUIRE_CHECK(!nodes_[index].is_listed) << BlockId{index} << " leaves the tree out of turn";
  trie_.RemoveLeaf(index);
  const uint32_t root = nodes_[index].root;
  pool_->SetCached(BlockId{index}, false);
  nodes_[index] = Node();
  last_evicted_.push_back(BlockId{index});
  --num_blocks_;
  if (trie_.HasChildren(root)) return;
  roots_.erase(SaltOf(root));
  trie_.RemoveRoot(root);
}

absl::Status PrefixTree::CheckIntegrity() const {
  if (trie_.num_roots() != static_cast<int>(roots_.size())) {
    return absl::InternalError(absl::StrCat(trie_.num_roots(), " roots for ", roots_.size(), " salts"));
  }
  std::vector<uint32_t> reached;  // Parents before children.
  for (const auto& [salt, root] : roots_) {
    if (!trie_.HasChildren(root) || SaltOf(root)->first != salt) {
      return absl::InternalError(absl::StrCat("root ", root, " has no children or another salt"));
    }
    QUIRE_RETURN_IF_ERROR(trie_.CheckChildren(root));
    trie_.AppendChildren(root, &reached);
  }
  for (size_t i = 0; i < reached.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(CheckNode(reached[i]));
    QUIRE_RETURN_IF_ERROR(trie_.CheckChildren(reached[i]));
    trie_.AppendChildren(reached[i], &reached);
  }
  size_t held = 0;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].block) ++held;
    if (pool_->is_cached(BlockId{i}) != Contains(BlockId{i})) {
      return absl::InternalError(absl::StrCat("block ", i, " is cached by the pool or in the tree, but not both"));
    }
  }
  if (held != reached.size() || static_cast<int>(held) != num_blocks_) {
    return absl::InternalError(
        absl::StrCat("the tree holds ", held, " blocks, reaches ", reached.size(), " and counts ", num_blocks_));
  }
  return CheckEntries();
}

absl::Status PrefixTree::CheckNode(uint32_t index) const {
  const Node& node = nodes_[index];
  const uint32_t parent = trie_.Parent(index);
  const bool has_parent = trie_.IsBlock(parent);
  if (!node.block || Value(node.block.id()) != index || node.number == 0 || node.number > num_inserted_) {
    return absl::InternalError(absl::StrCat("node ", index, " is in the tree without its block"));
  }
  const uint32_t root = has_parent ? nodes_[parent].root : parent;
  const uint32_t depth = has_parent ? nodes_[parent].depth + 1 : 1;
  if (node.root != root || node.depth != depth) {
    return absl::InternalError(absl::StrCat("block ", index, " has root ", node.root, " and depth ", node.depth,
                                            ", its place has root ", root, " and depth ", depth));
  }
  if (has_parent && node.is_proved && !nodes_[parent].is_proved) {
    return absl::InternalError(absl::StrCat("block ", index, " is proved, and its parent is not"));
  }
  if (has_parent && nodes_[parent].last_step < node.last_step) {
    return absl::InternalError(absl::StrCat("block ", index, " was used in step ", Value(node.last_step),
                                            ", its parent in step ", Value(nodes_[parent].last_step)));
  }
  const BlockId block{index};
  if (pool_->is_evictable(block) && !node.is_listed && !pool_->is_newly_evictable(block)) {
    return absl::InternalError(absl::StrCat("block ", index, " is evictable and not listed"));
  }
  return absl::OkStatus();
}

// Every listed node, and no other node, has exactly one entry, and the entry is not later than the node.
absl::Status PrefixTree::CheckEntries() const {
  std::vector<int> num_entries(nodes_.size(), 0);
  for (const Entry& entry : evictable_) {
    const Node& node = nodes_[entry.node];
    ++num_entries[entry.node];
    if (entry.number != node.number || entry.depth != node.depth || entry.step > node.last_step) {
      return absl::InternalError(absl::StrCat("block ", entry.node, ", cached as number ", node.number, " at depth ",
                                              node.depth, ", used in step ", Value(node.last_step), ", is listed for ",
                                              entry.number, ", ", entry.depth, " and ", Value(entry.step)));
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (num_entries[i] != nodes_[i].is_listed) {
      return absl::InternalError(absl::StrCat("block ", i, " is listed ", num_entries[i], " times"));
    }
  }
  if (!std::is_heap(evictable_.begin(), evictable_.end(), IsEvictedLater)) {
    return absl::InternalError("the list of evictable blocks is no heap");
  }
  return absl::OkStatus();
}

}  // namespace quire
