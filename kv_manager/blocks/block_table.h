// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_TABLE_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_TABLE_H_

#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_pool.h"
#include "scheduler/block_manager.h"

namespace quire {

// The blocks of one sequence, with one reference each. Token p is stored in block p / block_size at offset p %
// block_size. With blocks of 4 tokens and the table {7, 2}, token 5 is in block 2 at offset 1. Owned by one thread.
class BlockTable {
 public:
  explicit BlockTable(int block_size) : block_size_(block_size) {}

  void Append(BlockRef block);

  // Replaces entry `index` by `block` and returns the reference that it held.
  BlockRef Replace(int index, BlockRef block);

  // Returns a table with its own reference to each of the first `num_blocks` blocks.
  BlockTable Share(int num_blocks) const;

  int num_blocks() const { return static_cast<int>(ids_.size()); }
  int num_slots() const { return num_blocks() * block_size_; }
  const BlockRef& block(int index) const { return blocks_[index]; }
  absl::Span<const BlockId> ids() const { return ids_; }  // Valid until the next non-const call.

 private:
  int block_size_;
  std::vector<BlockRef> blocks_;
  std::vector<BlockId> ids_;  // ids_[i] == blocks_[i].id(). Tables are read and sent in this form.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_TABLE_H_
