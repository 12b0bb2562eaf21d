#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_TABLE_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_pool.h"
#include "scheduler/block_manager.h"

namespace quire {

// The blocks of one sequence, one reference each. Token p lives in block p / block_size at offset p % block_size, so
// with blocks of 4 tokens and the table {7, 2}, token 5 is at slot 2 * 4 + 1 = 9.
class BlockTable {
 public:
  explicit BlockTable(int block_size) : block_size_(block_size) {}

  void Append(BlockRef block);

  // Copy-on-write in place: entry `index` becomes `block`. Returns the reference it held.
  BlockRef Replace(int index, BlockRef block);

  // A table with a reference of its own to each of the first `num_blocks` blocks.
  BlockTable Share(int num_blocks) const;

  int num_blocks() const { return static_cast<int>(ids_.size()); }
  int num_slots() const { return num_blocks() * block_size_; }
  const BlockRef& block(int index) const { return blocks_[index]; }
  absl::Span<const BlockId> ids() const { return ids_; }  // Valid until the next non-const call.
  int64_t SlotOf(int position) const;                     // REQUIRES: 0 <= position < num_slots().

 private:
  int block_size_;
  std::vector<BlockRef> blocks_;
  std::vector<BlockId> ids_;  // ids_[i] == blocks_[i].id(): the form in which a table is read and sent.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_TABLE_H_
