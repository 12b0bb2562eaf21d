// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_LAUNCHES_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_LAUNCHES_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention_plan.h"
#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/kernel_table.h"

namespace quire::cuda {

constexpr int kDecodeRows = 16;   // Largest number of query rows of an item for attention_decode.
constexpr int kPrefillRows = 64;  // Largest number of query rows of an item for attention_prefill.

// Returns the largest number of query rows of an item for these kernels. A thread block of attention_prefill_sm90 has
// one warp group that copies, and 64 rows for each of the others. This kernel has no registers to spare for a softcap.
inline int MostItemRows(const KernelTable& kernels, bool has_softcap) {
  constexpr int kGroupThreads = 128, kGroupRows = 64;
  const Kernel<AttentionArgs>& sm90 = kernels.attention_prefill_sm90;
  return has_softcap || sm90.entry == nullptr ? kPrefillRows : (sm90.num_threads / kGroupThreads - 1) * kGroupRows;
}

// The properties of these kernels that the planner needs.
struct AttentionShape {
  int num_kv_heads;
  int group_size;  // Query heads per KV head, at most kPrefillRows.
  int window;
  int block_size;
};

// Plan options that cut every item at its splits, so that a row's result does not depend on the other rows. `item_rows`
// is MostItemRows, or kDecodeRows if one kernel must run all items. The kernels add in different orders.
inline AttentionPlanOptions CuttingPlanOptions(const AttentionShape& shape, int item_rows) {
  return {.num_kv_heads = shape.num_kv_heads,
          .group_size = shape.group_size,
          .window = shape.window,
          .block_size = shape.block_size,
          .tile_tokens = kSplitTokens,
          .split_tokens = kSplitTokens,
          .item_rows = item_rows,
          .min_items = std::numeric_limits<int>::max()};
}

// One launch, of the items or the merges [begin, end).
struct AttentionLaunch {
  Kernel<AttentionArgs> KernelTable::*kernel;
  int begin;
  int end;
};

// Lists the launches of a plan in their order. `items` becomes the plan's items; within a phase they are sorted by the
// kernel that runs them.
inline void ListLaunches(const AttentionPlan& plan, int group_size, std::vector<AttentionItem>* items,
                         std::vector<AttentionLaunch>* launches) {
  items->assign(plan.items.begin(), plan.items.end());
  launches->clear();
  const auto add = [&](Kernel<AttentionArgs> KernelTable::*kernel, int begin, int end) {
    if (begin < end) launches->push_back({kernel, begin, end});
  };
  const auto has_at_most = [&](int num_rows) {
    return [=](const AttentionItem& item) { return item.num_rows * group_size <= num_rows; };
  };
  int begin = 0;
  for (const int end : plan.phase_ends) {
    const auto end_of_phase = items->begin() + end;
    const auto prefill = std::stable_partition(items->begin() + begin, end_of_phase, has_at_most(kDecodeRows));
    const auto prefill_sm90 = std::stable_partition(prefill, end_of_phase, has_at_most(kPrefillRows));
    add(&KernelTable::attention_decode, begin, int(prefill - items->begin()));
    add(&KernelTable::attention_prefill, int(prefill - items->begin()), int(prefill_sm90 - items->begin()));
    add(&KernelTable::attention_prefill_sm90, int(prefill_sm90 - items->begin()), end);
    begin = end;
  }
  add(&KernelTable::attention_merge, 0, int(plan.merges.size()));
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_LAUNCHES_H_
