// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MARK_SET_H_
#define QUIRE_WORKER_MARK_SET_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quire {

// A set of small numbers, such as blocks or rows, where each member has an owner. Clear takes constant time, except for
// every 65535th call. Used by one thread.
class MarkSet {
 public:
  // Makes an empty set for numbers below `size`.
  explicit MarkSet(uint32_t size) : marks_(size) {}

  void Clear() {
    if (++generation_ != 0) return;
    std::fill(marks_.begin(), marks_.end(), Entry{});
    generation_ = 1;
  }
  // Adds `id`. Returns false, and changes nothing, when it is already marked.
  bool Mark(uint32_t id, uint32_t owner = 0) {
    if (IsMarked(id)) return false;
    marks_[id] = {generation_, owner};
    return true;
  }
  bool IsMarked(uint32_t id) const { return marks_[id].generation == generation_; }
  // REQUIRES: IsMarked(id).
  uint32_t Owner(uint32_t id) const { return marks_[id].owner; }

 private:
  struct Entry {
    uint16_t generation = 0;  // The generation in which it was marked, or 0.
    uint32_t owner = 0;
  };

  uint16_t generation_ = 1;
  std::vector<Entry> marks_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MARK_SET_H_
