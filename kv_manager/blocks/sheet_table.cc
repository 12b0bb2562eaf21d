// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/sheet_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace quire {

void SheetTable::Append(BlockRef block) {
  ids_.push_back(block.id());
  blocks_.push_back(std::move(block));
}

BlockRef SheetTable::Replace(int sheet, int part, BlockRef block) {
  const size_t index = IndexOf(sheet, part);
  ids_[index] = block.id();
  return std::exchange(blocks_[index], std::move(block));
}

void SheetTable::ReleaseBefore(int sheet) {
  const int last = std::min(sheet, end());
  for (; first_ < last; ++first_) {
    for (int i = 0; i < width_; ++i) blocks_[num_released_++] = BlockRef();
  }
  if (2 * num_released_ < blocks_.size()) return;
  blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<ptrdiff_t>(num_released_));
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(num_released_));
  num_released_ = 0;
}

void SheetTable::ShareBefore(const SheetTable& other, int first) {
  SheetTable front = other.Share(first, first_);
  front.blocks_.insert(front.blocks_.end(), std::make_move_iterator(blocks_.begin() + num_released_),
                       std::make_move_iterator(blocks_.end()));
  front.ids_.insert(front.ids_.end(), ids_.begin() + num_released_, ids_.end());
  *this = std::move(front);
}

SheetTable SheetTable::Share(int first, int end) const {
  QUIRE_CHECK_GE(first, first_);
  QUIRE_CHECK_LE(end, this->end());
  SheetTable table(width_);
  table.first_ = first;
  for (int sheet = first; sheet < end; ++sheet) {
    for (int part = 0; part < width_; ++part) table.Append(block(sheet, part).Share());
  }
  return table;
}

}  // namespace quire
