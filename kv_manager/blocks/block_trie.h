// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_TRIE_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace quire {

// Tries whose nodes are blocks of tokens: the path from a root to a node spells a prefix. The class keeps the shape
// only, that is, which node is a child of which, and finds children by their tokens. A node below a root has the number
// of its block. The roots have the numbers after the last block. Owned by one thread.
//
// The children of a node form a treap: a search tree by their tokens and a heap by random numbers, so its depth is
// logarithmic. A search passes both neighbours of the place that it looks for, and one of them is the child that agrees
// with the most tokens.
class BlockTrie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Match {
    uint32_t node = kNone;
    int num_tokens = 0;  // Says how many tokens of the node agree.
  };

  BlockTrie(int num_blocks, int block_size);

  uint32_t AddRoot();
  void RemoveRoot(uint32_t root);  // REQUIRES: the root has no children.

  // The child that agrees with the most of `tokens`, which are at most one block. The node is kNone when no child
  // agrees in the first token.
  Match FindChild(uint32_t parent, absl::Span<const TokenId> tokens) const;

  // REQUIRES: `block` is in no trie, and no child of `parent` has the same tokens.
  void AddChild(uint32_t parent, uint32_t block, absl::Span<const TokenId> tokens);
  void RemoveLeaf(uint32_t block);  // REQUIRES: the block has no children.

  int num_roots() const { return static_cast<int>(nodes_.size() - num_blocks_ - free_roots_.size()); }
  bool IsBlock(uint32_t node) const { return node < num_blocks_; }
  bool HasChildren(uint32_t node) const { return nodes_[node].children != kNone; }
  uint32_t Parent(uint32_t block) const { return nodes_[block].parent; }  // kNone for a block that is in no trie.
  absl::Span<const TokenId> TokensOf(uint32_t block) const;

  // Appends the children of `parent` in the order of their tokens.
  void AppendChildren(uint32_t parent, std::vector<uint32_t>* children) const;

  void Clear();

  // Returns whether the children of `parent` name it as their parent, are in order and form a treap.
  absl::Status CheckChildren(uint32_t parent) const;

 private:
  struct Node {
    uint32_t parent = kNone;
    uint32_t children = kNone;  // The top of the treap of the children.
    // The tops of the two treaps of siblings below this one: those with lesser tokens and those with greater tokens.
    uint32_t left = kNone;
    uint32_t right = kNone;
    uint32_t priority = 0;  // Smaller than the priority of the sibling above this one.
  };

  bool IsLess(uint32_t a, uint32_t b) const;
  uint32_t* LinkTo(uint32_t block);
  void Split(uint32_t top, uint32_t block, uint32_t* lesser, uint32_t* greater);
  uint32_t Join(uint32_t lesser, uint32_t greater);
  uint32_t NextPriority();

  const uint32_t num_blocks_;
  const size_t block_size_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // [num_blocks, block_size]
  std::vector<uint32_t> free_roots_;
  uint32_t random_ = 1;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_TRIE_H_
