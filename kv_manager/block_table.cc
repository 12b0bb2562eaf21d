#include "kv_manager/block_table.h"

#include <utility>

namespace quire {

void BlockTable::Append(BlockRef block) {
  ids_.push_back(block.id());
  blocks_.push_back(std::move(block));
}

BlockRef BlockTable::Replace(int index, BlockRef block) {
  ids_[index] = block.id();
  return std::exchange(blocks_[index], std::move(block));
}

BlockTable BlockTable::Share() const {
  BlockTable table(block_size_);
  table.blocks_.reserve(blocks_.size());
  for (const BlockRef& block : blocks_) table.blocks_.push_back(block.Share());
  table.ids_ = ids_;
  return table;
}

int64_t BlockTable::SlotOf(int position) const {
  return static_cast<int64_t>(Value(ids_[position / block_size_])) * block_size_ + position % block_size_;
}

}  // namespace quire
