// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_STATE_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_STATE_H_

#include <cstdint>

namespace quire {

// The state of a block, for reports. When several states apply, the last one counts. The numbers are the same as in
// v1::BlockState.
enum class BlockState : uint8_t {
  kFree = 1,
  kEvictable = 2,  // Only the prefix cache holds the block.
  kUsed = 3,
  kShared = 4,  // The block has more than one owner beside the cache.
  kPinned = 5,
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_STATE_H_
