// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_FREE_ROWS_H_
#define QUIRE_SCHEDULER_FREE_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace quire {

// The rows of the worker that are free. The lowest row is taken first, so that the used rows stay close together. Rows
// that are kept for the next manager are taken last.
class FreeRows {
 public:
  explicit FreeRows(int num_rows) {
    for (int i = 0; i < num_rows; ++i) rows_.push_back(RowId{static_cast<uint32_t>(i)});
  }

  // REQUIRES: size() > 0.
  RowId Take() {
    if (rows_.empty()) {
      const RowId row = kept_.front();
      kept_.pop_front();
      return row;
    }
    std::pop_heap(rows_.begin(), rows_.end(), std::greater<RowId>());
    const RowId row = rows_.back();
    rows_.pop_back();
    return row;
  }

  void Return(RowId row) {
    rows_.push_back(row);
    std::push_heap(rows_.begin(), rows_.end(), std::greater<RowId>());
  }

  // Takes these rows. REQUIRES: they are free, differ, and are not kept.
  void Take(const std::vector<RowId>& rows) {
    const size_t num_left = rows_.size() - rows.size();
    std::erase_if(rows_, [&](RowId row) { return std::find(rows.begin(), rows.end(), row) != rows.end(); });
    QUIRE_CHECK_EQ(rows_.size(), num_left);
    std::make_heap(rows_.begin(), rows_.end(), std::greater<RowId>());
  }

  // Takes these rows only when there are no others, the first one first. REQUIRES: they are free, differ, and are not
  // kept yet.
  void Keep(const std::vector<RowId>& rows) {
    Take(rows);
    kept_.insert(kept_.end(), rows.begin(), rows.end());
  }

  int size() const { return static_cast<int>(rows_.size() + kept_.size()); }

 private:
  std::vector<RowId> rows_;  // A heap with the lowest row on top.
  std::deque<RowId> kept_;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_FREE_ROWS_H_
