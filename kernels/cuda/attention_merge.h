#ifndef QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_

#include "kernels/cuda/attention_join.h"

namespace quire::cuda {

// Joins the partial results of rows that were cut at their splits, in ascending order, and writes their output. A warp
// handles one row of a KV head at a time, and a lane handles pairs of elements.
template <typename Element, int kHeadDim>
class AttentionMergeKernel {
 public:
  using Args = AttentionArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const AttentionArgs& args) {
    ForEachInRange(args, [&](int merge, int kv_head) { RunMerge(args, LoadWords(args.merges + merge), kv_head); });
  }

 private:
  static QUIRE_DEVICE void RunMerge(const AttentionArgs& args, const AttentionMerge& merge, int kv_head) {
    AttentionItem item{};
    item.first_row = merge.first_row;
    item.num_rows = merge.num_rows;
    const ItemRows rows = {args, item, kv_head};
    for (int row = simt::WarpIndex(); row < rows.count(); row += kThreads / simt::kWarpSize) {
      for (int d = 2 * simt::LaneIndex(); d < kHeadDim; d += 2 * simt::kWarpSize) MergePair(rows, merge, row, d);
    }
  }

  static QUIRE_DEVICE void MergePair(const ItemRows& rows, const AttentionMerge& merge, int row, int d) {
    JoinedElement joined[2];
    for (int p = 0; p < merge.num_places; ++p) {
      const int index = rows.Partial(simt::LoadReadOnly(rows.args.places + merge.first_place + p), row);
      QUIRE_UNROLL for (int e = 0; e < 2; ++e) joined[e].template JoinPartial<kHeadDim>(rows.args, index, d + e);
    }
    StoreOutput<Element, kHeadDim>(rows, row, d, joined[0].Output(), joined[1].Output());
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_
