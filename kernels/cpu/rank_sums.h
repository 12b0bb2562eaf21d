// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_RANK_SUMS_H_
#define QUIRE_KERNELS_CPU_RANK_SUMS_H_

#include <vector>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/rank_sums.h"

namespace quire::cpu {

// Exchanges sums and columns with the other ranks of a group, and adds the sums on all threads of a thread pool. Owned
// by the executor thread.
class CpuRankSums {
 public:
  CpuRankSums(const KernelTable* kernels, ThreadPool* pool) : kernels_(*kernels), pool_(pool) {}

  void Run(const AddPartsArgs& args);
  void Run(const GatherColumnsArgs& args);
  void Run(const ExchangeRowsArgs& args);

 private:
  // Sums of several ranks: those of rank r are at sums + r * stride.
  struct Parts {
    const float* sums;
    int64_t stride;
    int count;
  };
  // Gathers the sums of all ranks, or, if they are many, sums that are added already. Returns nothing in `sums` when
  // the group has ended.
  Parts Gather(const AddPartsArgs& args);
  // Finishes a row of y.
  void FinishRow(const AddPartsArgs& args, const Parts& parts, int row) const;
  // The same for a row with `shared`.
  void FinishSharedRow(const AddPartsArgs& args, const Parts& parts, int row) const;

  const KernelTable& kernels_;
  ThreadPool* const pool_;
  Memory sent_;      // What this rank sends. These grow to the size of the largest call.
  Memory received_;  // What all ranks have sent.
  Memory joined_;    // Sums of all ranks.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_RANK_SUMS_H_
