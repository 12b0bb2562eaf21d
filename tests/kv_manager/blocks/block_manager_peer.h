#ifndef QUIRE_TESTS_KV_MANAGER_BLOCKS_BLOCK_MANAGER_PEER_H_
#define QUIRE_TESTS_KV_MANAGER_BLOCKS_BLOCK_MANAGER_PEER_H_

#include "base/ids.h"
#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {

// Plants the mistakes that an audit is to find.
class BlockManagerPeer {
 public:
  // The block counts so many owners more than it has; nothing else knows of it.
  static void AddOwners(PagedBlockManager* blocks, BlockId block, int num_owners) {
    blocks->pool_.states_[Value(block)].num_owners += num_owners;
  }
  static void AddHostOwners(PagedBlockManager* blocks, BlockId block, int num_owners) {
    blocks->host_pool_.states_[Value(block)].num_owners += num_owners;
  }
  static void AddCopies(PagedBlockManager* blocks, BlockId block, int num_copies) {
    blocks->num_copies_[Value(block)] += num_copies;
  }
  // A block of the cache, of which the pool does not know.
  static void ForgetThatItIsCached(PagedBlockManager* blocks, BlockId block) {
    blocks->pool_.states_[Value(block)].is_cached = 0;
  }
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_BLOCKS_BLOCK_MANAGER_PEER_H_
