#ifndef QUIRE_WORKER_BLOCK_MARKS_H_
#define QUIRE_WORKER_BLOCK_MARKS_H_

#include <cstdint>
#include <vector>

namespace quire {

// A set of small numbers (blocks, rows), each with an owner, emptied in constant time. Owned by one thread.
class BlockMarks {
 public:
  explicit BlockMarks(uint32_t size) : marks_(size, 0) {}

  void Clear() { ++generation_; }
  // False, and nothing changes, when `id` is marked already.
  bool Mark(uint32_t id, uint32_t owner = 0) {
    if (IsMarked(id)) return false;
    marks_[id] = generation_ << 32 | owner;
    return true;
  }
  bool IsMarked(uint32_t id) const { return marks_[id] >> 32 == generation_; }
  // REQUIRES: IsMarked(id).
  uint32_t Owner(uint32_t id) const { return static_cast<uint32_t>(marks_[id]); }

 private:
  uint64_t generation_ = 1;      // Two per step: 32 bits last for years.
  std::vector<uint64_t> marks_;  // Upper half: the generation of the mark; lower half: its owner.
};

}  // namespace quire

#endif  // QUIRE_WORKER_BLOCK_MARKS_H_
