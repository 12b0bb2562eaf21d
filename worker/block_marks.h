#ifndef QUIRE_WORKER_BLOCK_MARKS_H_
#define QUIRE_WORKER_BLOCK_MARKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quire {

// A set of small numbers (blocks, rows), each with an owner, emptied in constant time but for once in as many times as
// there are generations. Owned by one thread.
template <typename Generation>
class MarkSet {
 public:
  // For numbers below `size`.
  explicit MarkSet(uint32_t size) : marks_(size) {}

  void Clear() {
    if (++generation_ != 0) return;
    std::fill(marks_.begin(), marks_.end(), Entry{});
    generation_ = 1;
  }
  // False, and nothing changes, when `id` is marked already.
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
    Generation generation = 0;  // In which it was marked; 0: never.
    uint32_t owner = 0;
  };

  Generation generation_ = 1;
  std::vector<Entry> marks_;
};

using BlockMarks = MarkSet<uint32_t>;

}  // namespace quire

#endif  // QUIRE_WORKER_BLOCK_MARKS_H_
