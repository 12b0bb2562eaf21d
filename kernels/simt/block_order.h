// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_BLOCK_ORDER_H_
#define QUIRE_KERNELS_SIMT_BLOCK_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "kernels/simt/access_history.h"
#include "kernels/simt/problem.h"

namespace quire::simt {

// An access by an earlier block.
struct BlockAccess {
  Place place;
  int block = -1;      // -1: there was none.
  uint32_t stamp = 0;  // The count of the block's BarrierClock.
  uint16_t thread = 0;
  bool several = false;  // Whether other blocks before this one, unordered with it, made the same access.
};

// Decides which accesses of earlier blocks the program orders before the running block. The emulator's own order of
// blocks does not count. One pattern orders two blocks: the first executes a MemoryFence and then an atomic, and the
// second executes an atomic on the same address ("the last block to take a ticket adds up what all have written").
// Writes by other threads of the first block are included if a barrier lies between them and the atomic. Two things are
// not checked: that the second block has its own fence, and which thread of the first block executes the fence.
class BlockOrder {
 public:
  explicit BlockOrder(const BarrierClock* clock) : clock_(clock) {}

  void BeginBlock(int block);
  void OnFence() { has_fenced_ = true; }
  void OnAtomic(const void* p, int thread);

  // Whether the running block is ordered after an access of another block.
  bool ComesAfter(const BlockAccess& earlier) const;

 private:
  // The accesses that a block has published: all accesses before the stamp, and all accesses of one thread.
  struct Release {
    uint32_t end_stamp;
    int thread;
  };
  using Releases = std::map<int, Release>;  // Keyed by block.
  static void Merge(const Releases& from, Releases* to);

  const BarrierClock* clock_;
  int block_ = -1;
  int num_earlier_blocks_ = -1;
  bool has_fenced_ = false;
  Releases known_;                              // Releases that the running block knows.
  std::map<const void*, Releases> at_address_;  // Releases that an atomic at the address makes known.
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_BLOCK_ORDER_H_
