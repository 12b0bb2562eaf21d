#ifndef QUIRE_KERNELS_SIMT_BLOCK_ORDER_H_
#define QUIRE_KERNELS_SIMT_BLOCK_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "kernels/simt/access_history.h"
#include "kernels/simt/problem.h"

namespace quire::simt {

// An access by a block that has run before.
struct BlockAccess {
  Place place;
  int block = -1;      // -1: none.
  uint32_t stamp = 0;  // By the block's BarrierClock.
  uint16_t thread = 0;
  bool several = false;  // Other blocks before this one, not ordered with it, did the same.
};

// Which accesses of earlier blocks the running block comes after by its program, not just because the emulator runs one
// block after another. One way leads from block to block: a MemoryFence, then an atomic in the one; an atomic on the
// same address in the other ("the last block to take a ticket adds up what all have written"). What the other threads
// of the first block wrote is included if a barrier stands between it and the atomic. That the second block needs a
// fence of its own, and which thread's fence it is in the first, is not looked at.
class BlockOrder {
 public:
  explicit BlockOrder(const BarrierClock* clock) : clock_(clock) {}

  void BeginBlock(int block);
  void OnFence() { has_fenced_ = true; }
  void OnAtomic(const void* p, int thread);

  // Whether the running block comes after an access of another.
  bool ComesAfter(const BlockAccess& earlier) const;

 private:
  // What a block has published: all accesses before the stamp, and those of a thread.
  struct Release {
    uint32_t end_stamp;
    int thread;
  };
  using Releases = std::map<int, Release>;  // By block.
  static void Merge(const Releases& from, Releases* to);

  const BarrierClock* clock_;
  int block_ = -1;
  int num_earlier_blocks_ = -1;
  bool has_fenced_ = false;
  Releases known_;                              // To the running block.
  std::map<const void*, Releases> at_address_;  // What an atomic there gets to know.
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_BLOCK_ORDER_H_
