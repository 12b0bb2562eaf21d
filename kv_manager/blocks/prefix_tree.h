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

// The full blocks of one pool by content: a node per cached block, named by its block id. The path from a root to a
// node spells the tokens of a prefix, and there is one root per salt: prefixes under different salts never meet. Every
// token is compared, so a hit is exact. The tree holds one reference to each of its blocks and marks it as cached; a
// block that nobody else holds is evictable. Owned by the step-loop thread; equal calls give equal answers.
//
// Whoever holds a node's block should hold its ancestors' too, as a sequence does that takes over the block which
// Insert returns. Then evictable nodes have only evictable nodes below them.
class PrefixTree {
 public:
  // The longest cached prefix of a prompt. Its last block may agree only in its first tokens: such a block is copied,
  // never shared.
  struct Hit {
    std::vector<BlockId> blocks;           // Those that agree as a whole, from the root down.
    std::optional<BlockId> partial_block;  // Below the last of `blocks`.
    int num_partial_tokens = 0;            // Of partial_block, that agree.
    int num_tokens = 0;                    // Of the prefix.
    int num_evictable = 0;                 // Of these blocks. They stop being evictable once somebody holds them.
  };

  // `pool` outlives the tree.
  PrefixTree(int block_size, BlockPool* pool);
  ~PrefixTree() { Clear(); }
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The longest cached prefix of the first `limit` tokens. Where several blocks would do as the partial one, the tree's
  // shape decides.
  Hit Find(absl::string_view salt, absl::Span<const TokenId> tokens, int limit) const;

  // Caches a full block: `tokens` are its own, `parent` is the block before it (none for the first of a sequence). From
  // now on it is found, so who reads it must come after the step that writes it. When these tokens are cached already,
  // nothing is added. Returns the block that now stands for them: where it is not `block`, the caller takes a reference
  // to it instead of its own.
  // REQUIRES: `parent` is cached under `salt`; `block` is not cached elsewhere.
  BlockId Insert(absl::string_view salt, std::optional<BlockId> parent, absl::Span<const TokenId> tokens,
                 const BlockRef& block, StepId step);

  // `step` used the block and therefore its ancestors. Cheap when it is the second to say so. Steps never go back; a
  // holder says so before it lets go. REQUIRES: cached.
  void Touch(BlockId block, StepId step);

  BlockRef Share(BlockId block) const;  // REQUIRES: cached.
  bool Contains(BlockId block) const { return static_cast<bool>(nodes_[Value(block)].block); }

  // Frees the evictable block that was used least recently, of those of one step the deepest, of these the oldest. So
  // leaves go first. A node below it, which somebody holds without its ancestors, leaves the tree with it. Returns
  // nothing when no block is evictable.
  std::optional<BlockId> EvictOne();
  // What has left the tree with it. Valid until the next call of EvictOne.
  const std::vector<BlockId>& last_evicted() const { return last_evicted_; }

  // Of a cached block: 1 for the first of a prefix, and the step that last used it or one below it.
  int depth(BlockId block) const { return static_cast<int>(nodes_[Value(block)].depth); }
  StepId last_step(BlockId block) const { return nodes_[Value(block)].last_step; }

  // All of them can be evicted one after the other.
  int num_evictable() const { return pool_->num_evictable(); }
  int num_blocks() const { return num_blocks_; }  // Cached ones.

  // Forgets everything, as when the worker and with it the contents of its blocks are lost.
  void Clear();

  // Walks the tree and compares it with the pool. O(blocks); the error names the first contradiction.
  absl::Status CheckIntegrity() const;

 private:
  using Roots = std::map<std::string, uint32_t, std::less<>>;

  struct Node {
    BlockRef block;          // Nothing when the block is not cached.
    StepId last_step{0};     // Used it, or a node below it.
    uint64_t number = 0;     // 1, 2, 3, ... in the order of Insert; 0 when the block is not cached.
    uint32_t root = 0;       // In trie_.
    uint32_t depth = 0;      // Of a root's child: 1.
    bool is_listed = false;  // Has an entry in evictable_.
  };

  // A node at the time when it was listed. Steps only grow, so its turn comes no earlier.
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
  void Remove(uint32_t node);
  void RemoveLeaf(uint32_t node);
  absl::Status CheckNode(uint32_t node) const;
  absl::Status CheckEntries() const;

  const int block_size_;
  BlockPool* const pool_;
  BlockTrie trie_;
  std::vector<Node> nodes_;               // By block id.
  Roots roots_;                           // By salt. Each has children.
  std::vector<Roots::iterator> salts_;    // By root, from the trie's first on.
  std::vector<Entry> evictable_;          // A heap by IsEvictedLater. Some have come into use again.
  std::vector<BlockId> newly_evictable_;  // Scratch.
  std::vector<BlockId> last_evicted_;
  int num_blocks_ = 0;
  uint64_t num_inserted_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PREFIX_TREE_H_
