// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/block_trie.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace quire {

BlockTrie::BlockTrie(int num_blocks, int block_size)
    : num_blocks_(num_blocks), block_size_(block_size), nodes_(num_blocks), tokens_(num_blocks_ * block_size_) {
  QUIRE_CHECK_GT(block_size, 0);
}

uint32_t BlockTrie::AddRoot() {
  if (free_roots_.empty()) {
    nodes_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  const uint32_t root = free_roots_.back();
  free_roots_.pop_back();
  return root;
}

void BlockTrie::RemoveRoot(uint32_t root) {
  QUIRE_CHECK(!IsBlock(root) && !HasChildren(root)) << root;
  free_roots_.push_back(root);
}

BlockTrie::Match BlockTrie::FindChild(uint32_t parent, absl::Span<const TokenId> tokens) const {
  Match best;
  uint32_t node = nodes_[parent].children;
  while (node != kNone) {
    const TokenId* own = TokensOf(node).data();
    size_t equal = 0;
    while (equal < tokens.size() && tokens[equal] == own[equal]) ++equal;
    if (static_cast<int>(equal) > best.num_tokens) best = {node, static_cast<int>(equal)};
    if (equal == tokens.size()) break;
    node = tokens[equal] < own[equal] ? nodes_[node].left : nodes_[node].right;
  }
  return best;
}

void BlockTrie::AddChild(uint32_t parent, uint32_t block, absl::Span<const TokenId> tokens) {
  QUIRE_CHECK(IsBlock(block)) << block;
  QUIRE_CHECK_EQ(tokens.size(), block_size_);
  QUIRE_CHECK_EQ(nodes_[block].parent, kNone) << block << " has a parent";
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + block * block_size_);
  Node& node = nodes_[block];
  node.parent = parent;
  node.priority = NextPriority();
  uint32_t* link = &nodes_[parent].children;
  while (*link != kNone && nodes_[*link].priority > node.priority) {
    link = IsLess(block, *link) ? &nodes_[*link].left : &nodes_[*link].right;
  }
  Split(*link, block, &node.left, &node.right);
  *link = block;
}

void BlockTrie::RemoveLeaf(uint32_t block) {
  QUIRE_CHECK(IsBlock(block) && !HasChildren(block)) << block;
  uint32_t* link = LinkTo(block);
  *link = Join(nodes_[block].left, nodes_[block].right);
  nodes_[block] = Node();
}

absl::Span<const TokenId> BlockTrie::TokensOf(uint32_t block) const {
  return absl::MakeConstSpan(tokens_.data() + block * block_size_, block_size_);
}

void BlockTrie::AppendChildren(uint32_t parent, std::vector<uint32_t>* children) const {
  std::vector<uint32_t> lesser;  // Siblings whose left subtree is being listed.
  uint32_t node = nodes_[parent].children;
  while (node != kNone || !lesser.empty()) {
    while (node != kNone) {
      lesser.push_back(node);
      node = nodes_[node].left;
    }
    children->push_back(lesser.back());
    node = nodes_[lesser.back()].right;
    lesser.pop_back();
  }
}

void BlockTrie::Clear() {
  nodes_.assign(num_blocks_, Node());
  free_roots_.clear();
}

absl::Status BlockTrie::CheckChildren(uint32_t parent) const {
  std::vector<uint32_t> children;
  AppendChildren(parent, &children);
  for (size_t i = 0; i < children.size(); ++i) {
    const Node& node = nodes_[children[i]];
    if (node.parent != parent) {
      return absl::InternalError(absl::StrCat("block ", children[i], " is a child of node ", parent, " and names node ",
                                              node.parent, " as its parent"));
    }
    if (i > 0 && !IsLess(children[i - 1], children[i])) {
      return absl::InternalError(absl::StrCat("siblings ", children[i - 1], " and ", children[i], " are out of order"));
    }
    for (uint32_t below : {node.left, node.right}) {
      if (below != kNone && nodes_[below].priority > node.priority) {
        return absl::InternalError(absl::StrCat("sibling ", below, " belongs above ", children[i]));
      }
    }
  }
  return absl::OkStatus();
}

bool BlockTrie::IsLess(uint32_t a, uint32_t b) const {
  const absl::Span<const TokenId> left = TokensOf(a);
  const absl::Span<const TokenId> right = TokensOf(b);
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
}

// The field of the parent or sibling that refers to the block.
uint32_t* BlockTrie::LinkTo(uint32_t block) {
  QUIRE_CHECK_NE(nodes_[block].parent, kNone) << "block " << block << " is in no trie";
  uint32_t* link = &nodes_[nodes_[block].parent].children;
  while (*link != block) {
    QUIRE_CHECK_NE(*link, kNone) << "block " << block << " is not among its siblings";
    link = IsLess(block, *link) ? &nodes_[*link].left : &nodes_[*link].right;
  }
  return link;
}

// Splits the treap under `top` into the siblings before `block` and those after it.
void BlockTrie::Split(uint32_t top, uint32_t block, uint32_t* lesser, uint32_t* greater) {
  while (top != kNone) {
    if (IsLess(top, block)) {
      *lesser = top;
      lesser = &nodes_[top].right;
      top = *lesser;
    } else {
      *greater = top;
      greater = &nodes_[top].left;
      top = *greater;
    }
  }
  *lesser = kNone;
  *greater = kNone;
}

// Joins two treaps. `lesser` holds the lesser tokens.
uint32_t BlockTrie::Join(uint32_t lesser, uint32_t greater) {
  uint32_t top = kNone;
  uint32_t* link = &top;
  while (lesser != kNone && greater != kNone) {
    if (nodes_[lesser].priority > nodes_[greater].priority) {
      *link = lesser;
      link = &nodes_[lesser].right;
      lesser = *link;
    } else {
      *link = greater;
      link = &nodes_[greater].left;
      greater = *link;
    }
  }
  *link = lesser != kNone ? lesser : greater;
  return top;
}

// The generator is from Marsaglia, "Xorshift RNGs", 2003. Any numbers will do that do not depend on the tokens.
uint32_t BlockTrie::NextPriority() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  return random_;
}

}  // namespace quire
