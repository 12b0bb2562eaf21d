// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_EXPERT_PLAN_H_
#define QUIRE_KERNELS_CUDA_EXPERT_PLAN_H_

#include <cstdint>

#include "kernels/cuda/route.h"

namespace quire::cuda {

// A pair is a token and one of its experts; pair p is expert p % top_k of token p / top_k. Products by experts take the
// pairs in the order of their experts, and the pairs of an expert in the order of their tokens.

constexpr int kItemPairs = 64;  // The most pairs of an item.

// Some pairs of an expert.
struct ExpertItem {
  int32_t expert;
  int32_t first;  // Index into the order of the pairs.
  int32_t count;
};

// Returns a bound on the number of items that depends on the sizes alone.
constexpr int MostExpertItems(int num_pairs, int num_experts) {
  return (num_pairs < num_experts ? num_pairs : num_experts) + num_pairs / kItemPairs;
}

struct ExpertPlanArgs {
  const int32_t* experts;  // [num_pairs]
  int32_t* order;          // [num_pairs]: the pairs in their order.
  ExpertItem* items;       // [MostExpertItems]
  int32_t* num_items;
  int32_t num_pairs;
  int32_t num_experts;  // At most kMostExperts.
};

// One thread block. A thread counts the pairs of one expert and puts them into their places.
class ExpertPlanKernel {
 public:
  using Args = ExpertPlanArgs;
  static constexpr int kThreads = kMostExperts;

 private:
  static constexpr int kWarps = kThreads / simt::kWarpSize;
  static constexpr int kTilePairs = 4096;  // Pairs that are in shared memory at a time.

 public:
  static constexpr int kSharedBytes = (kTilePairs + 2 * kWarps) * int(sizeof(int32_t));

  static QUIRE_DEVICE void Run(const ExpertPlanArgs& args) {
    simt::WaitForPriorGrid();
    const int expert = simt::ThreadIndex();
    int count = 0;
    ForEachPairOf(args, expert, [&](int) { ++count; });
    const int num_items = (count + kItemPairs - 1) / kItemPairs;
    int first, item;
    PlaceBefore(count, num_items, &first, &item);
    int place = first;
    ForEachPairOf(args, expert, [&](int pair) { simt::StoreGlobal(args.order + place++, pair); });
    for (int i = 0; i < num_items; ++i) {
      const int done = i * kItemPairs, left = count - done;
      int32_t* const to = reinterpret_cast<int32_t*>(args.items + item + i);
      simt::StoreGlobal(to, expert);
      simt::StoreGlobal(to + 1, first + done);
      simt::StoreGlobal(to + 2, left < kItemPairs ? left : kItemPairs);
    }
    if (expert == kThreads - 1) simt::StoreGlobal(args.num_items, item + num_items);
    simt::TriggerNextGrid();
  }

 private:
  // Calls f(pair) for all pairs of the expert, in their order.
  template <typename F>
  static QUIRE_DEVICE void ForEachPairOf(const ExpertPlanArgs& args, int expert, F f) {
    auto* const tile = reinterpret_cast<int32_t*>(simt::SharedMemory());
    for (int begin = 0; begin < args.num_pairs; begin += kTilePairs) {
      const int count = args.num_pairs - begin < kTilePairs ? args.num_pairs - begin : kTilePairs;
      for (int i = simt::ThreadIndex(); i < count; i += kThreads) {
        simt::StoreShared(tile + i, simt::LoadGlobal(args.experts + begin + i));
      }
      simt::SyncBlock();
      for (int i = 0; i < count && expert < args.num_experts; ++i) {
        if (simt::LoadShared(tile + i) == expert) f(begin + i);
      }
      simt::SyncBlock();  // The next tile overwrites this one.
    }
  }

  // Gives every thread the sums of both numbers over the threads before it.
  static QUIRE_DEVICE void PlaceBefore(int count, int num_items, int* first, int* item) {
    auto* const sums = reinterpret_cast<int32_t*>(simt::SharedMemory()) + kTilePairs;
    int counts = count, items = num_items;  // Over the lanes up to this one.
    QUIRE_UNROLL for (int delta = 1; delta < simt::kWarpSize; delta *= 2) {
      const int more_counts = simt::ShuffleUp(counts, delta), more_items = simt::ShuffleUp(items, delta);
      if (simt::LaneIndex() < delta) continue;
      counts += more_counts;
      items += more_items;
    }
    if (simt::LaneIndex() == simt::kWarpSize - 1) {
      simt::StoreShared(sums + simt::WarpIndex(), counts);
      simt::StoreShared(sums + kWarps + simt::WarpIndex(), items);
    }
    simt::SyncBlock();
    *first = counts - count;
    *item = items - num_items;
    for (int warp = 0; warp < simt::WarpIndex(); ++warp) {
      *first += simt::LoadShared(sums + warp);
      *item += simt::LoadShared(sums + kWarps + warp);
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_EXPERT_PLAN_H_
