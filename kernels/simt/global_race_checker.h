// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_GLOBAL_RACE_CHECKER_H_
#define QUIRE_KERNELS_SIMT_GLOBAL_RACE_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "kernels/simt/access_history.h"
#include "kernels/simt/block_order.h"
#include "kernels/simt/problem.h"

namespace quire::simt {

// Finds pairs of accesses to global memory, at least one of them a plain write, that are not ordered. Within a block
// the rules of shared memory apply; between blocks, BlockOrder decides. Owned by the launch.
class GlobalRaceChecker {
 public:
  GlobalRaceChecker(const BarrierClock* clock, ProblemLog* log) : clock_(clock), log_(log), order_(clock) {}

  void BeginBlock(int block);
  void OnFence() { order_.OnFence(); }

  // These record one access inside a writable buffer.
  void OnRead(const void* p, size_t bytes, Operation operation, const Accessor& by);
  void OnWrite(const void* p, size_t bytes, Operation operation, const Accessor& by);
  void OnAtomic(const void* p, size_t bytes, const Accessor& by);

 private:
  // The history of a granule: accesses of the block that touched it last, and accesses of the blocks before that one.
  struct History {
    AccessHistory own;
    int owner = -1;
    BlockAccess writes;
    BlockAccess reads;
    bool is_atomic = false;  // Whether the writes of the blocks before were atomics.
  };

  template <typename Visit>
  void ForEach(const void* p, size_t bytes, Visit visit);
  void TakeOver(History* history) const;
  void Report(const History& history, bool with_write, const void* p, Operation operation, const Accessor& by);

  static constexpr uintptr_t kPageBytes = 4096;

  const BarrierClock* clock_;
  ProblemLog* log_;
  BlockOrder order_;
  int block_ = -1;
  std::unordered_map<uintptr_t, std::unique_ptr<HistoryMap<History>>> pages_;  // Keyed by address / kPageBytes.
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_GLOBAL_RACE_CHECKER_H_
