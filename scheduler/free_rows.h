#ifndef QUIRE_SCHEDULER_FREE_ROWS_H_
#define QUIRE_SCHEDULER_FREE_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace quire {

// The rows of the worker that are free. The lowest row is taken first, so that the used rows stay close together.
class FreeRows {
 public:
  explicit FreeRows(int num_rows) {
    for (int i = 0; i < num_rows; ++i) rows_.push_back(RowId{static_cast<uint32_t>(i)});
  }

  // REQUIRES: size() > 0.
  RowId Take() {
    std::pop_heap(rows_.begin(), rows_.end(), std::greater<RowId>());
    const RowId row = rows_.back();
    rows_.pop_back();
    return row;
  }

  void Return(RowId row) {
    rows_.push_back(row);
    std::push_heap(rows_.begin(), rows_.end(), std::greater<RowId>());
  }

  // Takes these rows. REQUIRES: they are free and differ.
  void Take(const std::vector<RowId>& rows) {
    const size_t num_left = rows_.size() - rows.size();
    std::erase_if(rows_, [&](RowId row) { return std::find(rows.begin(), rows.end(), row) != rows.end(); });
    QUIRE_CHECK_EQ(rows_.size(), num_left);
    std::make_heap(rows_.begin(), rows_.end(), std::greater<RowId>());
  }

  int size() const { return static_cast<int>(rows_.size()); }

 private:
  std::vector<RowId> rows_;  // A heap with the lowest row on top.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_FREE_ROWS_H_
