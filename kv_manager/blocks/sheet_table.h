// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_SHEET_TABLE_H_
#define QUIRE_KV_MANAGER_BLOCKS_SHEET_TABLE_H_

#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_pool.h"
#include "scheduler/block_manager.h"

namespace quire {

// The live sheets of one sequence in a cache group with a window, with one reference to each of their blocks. Sheets
// leave at the front as the window moves on. Owned by one thread.
//
// Example with two blocks per sheet: after sheets 0 to 3 were appended and ReleaseBefore(2), the table has sheets 2 and
// 3, which are the blocks 4 to 7 that were appended.
class SheetTable {
 public:
  explicit SheetTable(int blocks_per_sheet) : width_(blocks_per_sheet) {}

  // Lets the table begin at this sheet. REQUIRES: it is empty.
  void BeginAt(int sheet) { first_ = sheet; }
  // Appends the next block of the last sheet, or the first one of a further sheet.
  void Append(BlockRef block);
  // Replaces block `part` of a sheet and returns the reference that the table held.
  BlockRef Replace(int sheet, int part, BlockRef block);
  // Drops the references to all sheets before this one.
  void ReleaseBefore(int sheet);
  // Puts the sheets [first, begin of this table) of `other` in front, with references of its own. REQUIRES: `other` has
  // them.
  void ShareBefore(const SheetTable& other, int first);
  // Returns a table with its own references to the sheets [first, end). REQUIRES: this one has them.
  SheetTable Share(int first, int end) const;

  bool is_empty() const { return num_released_ == blocks_.size(); }
  int first() const { return first_; }
  int end() const { return first_ + static_cast<int>(blocks_.size() - num_released_) / width_; }
  int blocks_per_sheet() const { return width_; }
  const BlockRef& block(int sheet, int part) const { return blocks_[IndexOf(sheet, part)]; }
  // The blocks of all sheets. Valid until the next non-const call.
  SheetsView view() const { return {first_, absl::MakeConstSpan(ids_).subspan(num_released_)}; }

 private:
  size_t IndexOf(int sheet, int part) const {
    return num_released_ + static_cast<size_t>(sheet - first_) * width_ + part;
  }

  int width_;
  int first_ = 0;
  // The first num_released_ entries belong to no sheet. They are erased when they are at least half of all entries, so
  // that a release moves few entries on average.
  size_t num_released_ = 0;
  std::vector<BlockRef> blocks_;
  std::vector<BlockId> ids_;  // ids_[i] == blocks_[i].id() from num_released_ on.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_SHEET_TABLE_H_
