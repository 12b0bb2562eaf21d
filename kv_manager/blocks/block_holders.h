// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_HOLDERS_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_HOLDERS_H_

#include <cstdint>

#include "kv_manager/blocks/block_state.h"
#include "kv_manager/blocks/prefix_index.h"

namespace quire {

// Who holds one block of the pool, as numbers. The sequences that hold it are not named.
struct BlockHolders {
  BlockState state = BlockState::kFree;
  int num_references = 0;  // References by all holders together.
  int num_pins = 0;        // References by pins.
  int num_copies = 0;      // References by copies in flight.
  bool is_cached = false;  // The prefix cache has one of the references.
  // The following describe a cached block only.
  int depth = 0;           // Number of the block in its prefix; 1 for the first.
  PrefixHash prefix = 0;   // The prefix that ends with this block; 0 without a prefix index.
  uint64_t age_steps = 0;  // Steps since this block, or one that continues its prefix, was last used.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_HOLDERS_H_
