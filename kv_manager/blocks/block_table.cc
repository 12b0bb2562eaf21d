// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/block_table.h"

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

BlockTable BlockTable::Share(int num_blocks) const {
  BlockTable table(block_size_);
  table.blocks_.reserve(num_blocks);
  for (int i = 0; i < num_blocks; ++i) table.blocks_.push_back(blocks_[i].Share());
  table.ids_.assign(ids_.begin(), ids_.begin() + num_blocks);
  return table;
}

}  // namespace quire
