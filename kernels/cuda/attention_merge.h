#ifndef QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_

#include "kernels/cuda/attention_join.h"

namespace quire::cuda {

// Joins the partial results of rows that were cut at their splits, in ascending order, and writes their output. A
// thread handles four elements of a row at a time.
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
    constexpr int kRowQuads = kHeadDim / 4;
    for (int i = simt::ThreadIndex(); i < rows.count() * kRowQuads; i += kThreads) {
      const int row = i / kRowQuads, d = i % kRowQuads * 4;
      JoinedElements<4> joined;
      joined.template JoinPlaces<kHeadDim>(rows, merge.first_place, merge.num_places, row,
                                           [&](const float* values) { return LoadFour(values + d); });
      StoreFour<Element, kHeadDim>(rows, row, d, joined);
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_
