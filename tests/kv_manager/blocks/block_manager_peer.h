// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_BLOCKS_BLOCK_MANAGER_PEER_H_
#define QUIRE_TESTS_KV_MANAGER_BLOCKS_BLOCK_MANAGER_PEER_H_

#include "base/ids.h"
#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {

// Plants wrong counts. An audit must find them.
class BlockManagerPeer {
 public:
  // Makes the pool count `num_owners` owners too many for the block.
  static void AddOwners(PagedBlockManager* blocks, BlockId block, int num_owners) {
    blocks->pool_.states_[Value(block)].num_owners += num_owners;
  }
  static void AddHostOwners(PagedBlockManager* blocks, BlockId block, int num_owners) {
    blocks->host_pool_.states_[Value(block)].num_owners += num_owners;
  }
  static void AddCopies(PagedBlockManager* blocks, BlockId block, int num_copies) {
    blocks->copies_.counts_[Value(block)] += num_copies;
  }
  // Makes the pool forget that the cache holds the block.
  static void ForgetThatItIsCached(PagedBlockManager* blocks, BlockId block) {
    blocks->pool_.states_[Value(block)].is_cached = 0;
  }
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_BLOCKS_BLOCK_MANAGER_PEER_H_
