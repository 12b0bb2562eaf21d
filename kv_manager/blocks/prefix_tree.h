// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_PREFIX_TREE_H_
#define QUIRE_KV_MANAGER_BLOCKS_PREFIX_TREE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_pool.h"
#include "kv_manager/blocks/block_trie.h"

namespace quire {

// The full blocks of one pool by their content. There is one node per cached block, which has the id of the block. The
// path from a root to a node spells the tokens of a prefix. There is one root per salt, so prefixes under different
// salts are never shared. Every token is compared, so a hit is exact. The tree holds one reference to each of its
// blocks and marks it as cached. A block that nobody else holds is evictable. Owned by the step-loop thread; equal
// calls give equal answers.
//
// Whoever holds the block of a node should also hold the blocks of its ancestors. A sequence does this when it takes
// over the block that Insert returns. Then all nodes below an evictable node are evictable too.
class PrefixTree {
 public:
  // The longest cached prefix of a prompt. Its last block may agree in its first tokens only. Such a block is copied
  // and never shared.
  struct Hit {
    std::vector<BlockId> blocks;           // Blocks that agree as a whole, from the root down.
    std::optional<BlockId> partial_block;  // A child of the last of `blocks` that agrees in part.
    int num_partial_tokens = 0;            // Says how many tokens of partial_block agree.
    int num_tokens = 0;                    // Says how many tokens the cached prefix has.
    int num_evictable = 0;                 // Says how many of these blocks are evictable now.
  };

  // `pool` outlives the tree.
  PrefixTree(int block_size, BlockPool* pool);
  ~PrefixTree() { Clear(); }
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Finds the longest cached prefix of the first `limit` tokens. When several blocks agree equally well in part, the
  // shape of the tree decides between them.
  Hit Find(absl::string_view salt, absl::Span<const TokenId> tokens, int limit) const;

  // Caches a full block. `tokens` are its own tokens, and `parent` is the block before it (none for the first block of
  // a sequence). Find returns the block from now on, so its readers must come after the step that writes it. When these
  // tokens are already cached, nothing is added. Returns the block that is cached for these tokens. When this is not
  // `block`, the caller replaces its own reference by one to the returned block. REQUIRES: `parent` is cached under
  // `salt`; `block` is not cached elsewhere.
  BlockId Insert(absl::string_view salt, std::optional<BlockId> parent, absl::Span<const TokenId> tokens,
                 const BlockRef& block, StepId step);

  // `step` has used the block and therefore its ancestors. Cheap when that is already known. Steps never decrease, and
  // a holder calls this before it gives up the block. REQUIRES: the block is cached.
  void Touch(BlockId block, StepId step);

  // What the block and its ancestors hold is sound. REQUIRES: the block is cached.
  void Prove(BlockId block);
  bool is_proved(BlockId block) const { return nodes_[Value(block)].is_proved; }

  BlockRef Share(BlockId block) const;  // REQUIRES: the block is cached.
  bool Contains(BlockId block) const { return static_cast<bool>(nodes_[Value(block)].block); }

  // Frees the evictable block that was used least recently. Among blocks of one step it is the deepest, and among these
  // the oldest, so leaves go first. Nodes below it that somebody holds without their ancestors leave the tree with it.
  // Returns nothing when no block is evictable.
  std::optional<BlockId> EvictOne();
  // Removes the block and all nodes below it, whoever holds them. REQUIRES: the block is cached.
  void Drop(BlockId block);
  // The blocks that left the tree in the last call of EvictOne or Drop. Valid until the next call.
  const std::vector<BlockId>& last_evicted() const { return last_evicted_; }

  // The depth of a cached block is 1 for the first block of a prefix. Its last step is the one that last used it or a
  // block below it. REQUIRES: the block is cached.
  int depth(BlockId block) const { return static_cast<int>(nodes_[Value(block)].depth); }
  StepId last_step(BlockId block) const { return nodes_[Value(block)].last_step; }

  // All evictable blocks can be evicted one after the other.
  int num_evictable() const { return pool_->num_evictable(); }
  int num_blocks() const { return num_blocks_; }  // The number of cached blocks.

  // Forgets everything. Called when the worker, and with it the content of its blocks, is lost.
  void Clear();

  // Walks the tree and compares it with the pool. O(blocks). The error names the first contradiction.
  absl::Status CheckIntegrity() const;

 private:
  using Roots = std::map<std::string, uint32_t, std::less<>>;

  struct Node {
    BlockRef block;          // Refers to nothing when the block is not cached.
    StepId last_step{0};     // The last step that used this node or a node below it.
    uint64_t number = 0;     // Nodes count 1, 2, 3, ... in the order of Insert. 0 when the block is not cached.
    uint32_t root = 0;       // The root above this node, as a node of trie_.
    uint32_t depth = 0;      // 1 for a child of a root.
    bool is_proved = false;  // See Prove. The nodes above it are proved, too.
    bool is_listed = false;  // The node has an entry in evictable_.
  };

  // A node as it was when it was listed. Its step can only grow afterwards, so it is never due earlier than its entry.
  struct Entry {
    StepId step;
    uint64_t number;
    uint32_t depth;
    uint32_t node;
  };

  static bool IsEvictedLater(const Entry& a, const Entry& b);

  uint32_t RootOf(absl::string_view salt);
  Roots::iterator& SaltOf(uint32_t root) { return salts_[root - nodes_.size()]; }
  Roots::const_iterator SaltOf(uint32_t root) const { return salts_[root - nodes_.size()]; }
  void RaiseStep(uint32_t node, StepId step);
  void List(uint32_t node);
  void ListNewlyEvictable();
  std::vector<uint32_t> SubtreeOf(uint32_t node) const;
  void Remove(uint32_t node);
  void RemoveLeaf(uint32_t node);
  absl::Status CheckNode(uint32_t node) const;
  absl::Status CheckEntries() const;

  const int block_size_;
  BlockPool* const pool_;
  BlockTrie trie_;
  std::vector<Node> nodes_;               // Indexed by block id.
  Roots roots_;                           // The root of each salt. Every root has children.
  std::vector<Roots::iterator> salts_;    // The entry of each root in roots_, starting with the first root of the trie.
  std::vector<Entry> evictable_;          // A heap by IsEvictedLater. Some of its nodes are in use again.
  std::vector<BlockId> newly_evictable_;  // Scratch space, kept to save allocations.
  std::vector<BlockId> last_evicted_;
  int num_blocks_ = 0;
  uint64_t num_inserted_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PREFIX_TREE_H_
