// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_POOL_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_POOL_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_state.h"

namespace quire {

class BlockPool;

// One reference to one block. It is move-only: Share() makes a further reference to the same block. The destructor is
// the only place where a reference count falls. The pool outlives its references.
class BlockRef {
 public:
  BlockRef() = default;  // Refers to nothing.
  BlockRef(BlockRef&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  BlockRef& operator=(BlockRef&& other) noexcept {
    BlockRef old(std::move(*this));
    pool_ = std::exchange(other.pool_, nullptr);
    id_ = other.id_;
    return *this;
  }
  ~BlockRef();

  BlockRef Share() const;  // REQUIRES: this refers to a block.

  BlockId id() const { return id_; }
  explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class BlockPool;
  BlockRef(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}

  BlockPool* pool_ = nullptr;
  BlockId id_{0};
};

// The blocks of one worker as numbers: which are free, and how many references each has. A block is free exactly when
// its reference count is 0. Owned by one thread.
//
// One reference to a block may belong to a cache, which then marks the block as cached. A cached block is evictable
// while that reference is the only one. Every block is either free, evictable or used.
//
// The free list is a stack: the block that was freed last is taken first, and a new pool hands out 0, 1, 2, ...
// Therefore equal calls give equal block ids.
class BlockPool {
 public:
  explicit BlockPool(int num_blocks);
  ~BlockPool();  // REQUIRES: every reference is gone.
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns the first reference to a free block, or a reference to nothing when no block is free.
  BlockRef Take();
  // Returns the first reference to each of these blocks, in this order. Rebuilds the free list, with the smallest id
  // first. O(blocks). REQUIRES: the blocks are free and differ.
  std::vector<BlockRef> TakeThese(absl::Span<const BlockId> blocks);

  int num_blocks() const { return static_cast<int>(states_.size()); }
  int num_free() const { return num_free_; }
  int num_evictable() const { return num_evictable_; }
  int num_used() const { return num_blocks() - num_free_ - num_evictable_; }
  int num_shared() const { return num_shared_; }  // Used blocks with two owners or more.
  int ref_count(BlockId block) const { return states_[Value(block)].ref_count(); }
  int num_owners(BlockId block) const { return states_[Value(block)].num_owners; }  // All references but the cache's.
  bool is_cached(BlockId block) const { return states_[Value(block)].is_cached != 0; }
  bool is_evictable(BlockId block) const { return is_cached(block) && num_owners(block) == 0; }

  // Called by the cache. It holds a reference when it sets the mark, and clears the mark before it drops the reference.
  void SetCached(BlockId block, bool is_cached);

  // Returns whether TakeNewlyEvictable is going to return the block.
  bool is_newly_evictable(BlockId block) const { return states_[Value(block)].is_newly_evictable != 0; }

  // Sets `blocks` to the blocks that have become evictable since the last call, each once, in the order in which they
  // became evictable. Some of them may be in use again.
  void TakeNewlyEvictable(std::vector<BlockId>* blocks);

  // The state of every block, indexed by its id. Pins are not known here. The states are maintained all the time:
  // computing them takes a hundred microseconds for 100,000 blocks, and copying them takes five. Valid until the next
  // non-const call.
  absl::Span<const BlockState> states() const { return shown_; }  // [num_blocks()]

  // Recomputes the free list and the counts from the states of the blocks. The error names the first contradiction.
  absl::Status CheckIntegrity() const;

  // The result of a recount for one block.
  struct Recount {
    int num_owners = 0;
    bool is_cached = false;
  };
  // Replaces all counts by the counts of the recount and rebuilds the free list, with the smallest id first. O(blocks).
  void Repair(absl::Span<const Recount> blocks);  // [num_blocks()]

 private:
  friend class BlockRef;
  friend class BlockManagerPeer;  // Test code that plants wrong counts.

  static constexpr uint32_t kNone = UINT32_MAX;

  // Four words: with 12 bytes, taking and dropping a block takes longer.
  struct State {
    int ref_count() const { return num_owners + is_cached; }

    int32_t num_owners = 0;
    int32_t is_cached = 0;           // 0 or 1.
    int32_t is_newly_evictable = 0;  // 0 or 1: the block is in newly_evictable_.
    uint32_t next_free = kNone;      // The next block of the free list. It has no meaning while the block is not free.
  };

  static BlockState StateOf(const State& state);
  void AddReference(BlockId block);
  void DropReference(BlockId block);
  void RebuildFreeList();
  void OnEvictable(BlockId block);

  std::vector<State> states_;      // Indexed by block id.
  std::vector<BlockState> shown_;  // Indexed by block id: StateOf(states_[i]).
  uint32_t first_free_ = kNone;
  std::vector<BlockId> newly_evictable_;
  int num_free_ = 0;
  int num_evictable_ = 0;
  int num_shared_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_POOL_H_
