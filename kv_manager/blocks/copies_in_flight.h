// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_COPIES_IN_FLIGHT_H_
#define QUIRE_KV_MANAGER_BLOCKS_COPIES_IN_FLIGHT_H_

#include <deque>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "kv_manager/blocks/block_pool.h"

namespace quire {

// The copies on write that are planned and whose steps are not committed. Each holds a reference to both of its blocks,
// so that neither is reused before the worker has made the copy. Owned by the step-loop thread.
class CopiesInFlight {
 public:
  struct Copy {
    StepId step;
    BlockRef source;
    BlockRef destination;
  };

  explicit CopiesInFlight(int num_blocks) : counts_(num_blocks, 0) {}

  // REQUIRES: `step` is not before that of any copy in flight.
  void Add(StepId step, BlockRef source, BlockRef destination);

  void DropFrom(StepId step);   // Drops the copies of `step` and later ones: these steps were never sent.
  void DropUntil(StepId step);  // Drops the copies of `step` and earlier ones: these steps are committed.
  void Clear();

  // The source of the copy that fills `destination` in `step`, or nothing when no copy of that step does.
  std::optional<BlockId> FindSource(BlockId destination, StepId step) const;

  // Returns how often `block` is the source or the destination of a copy.
  int CountOf(BlockId block) const { return counts_[Value(block)]; }

  const std::deque<Copy>& copies() const { return copies_; }  // Oldest step first.

  // Recomputes the counts from the copies.
  void RepairCounts();

 private:
  friend class BlockManagerPeer;  // Test code that plants wrong counts.

  void Count(const Copy& copy, int change);

  std::deque<Copy> copies_;
  std::vector<int> counts_;  // Indexed by block id.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_COPIES_IN_FLIGHT_H_
