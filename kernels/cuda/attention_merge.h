#ifndef QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_

#include "kernels/cuda/attention_join.h"

namespace quire::cuda {

// Joins the partial results of rows that were cut into parts, in ascending order, and writes their output. A thread
// handles four elements of a row at a time. It loads several partial results at once, because a load takes much longer
// than joining what it returns.
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
  static constexpr int kLoadedAtOnce = 8;

  static QUIRE_DEVICE void RunMerge(const AttentionArgs& args, const AttentionMerge& merge, int kv_head) {
    AttentionItem item{};
    item.first_row = merge.first_row;
    item.num_rows = merge.num_rows;
    const ItemRows rows = {args, item, kv_head};
    constexpr int kRowQuads = kHeadDim / 4;
    for (int i = simt::ThreadIndex(); i < rows.count() * kRowQuads; i += kThreads) {
      const int row = i / kRowQuads, d = i % kRowQuads * 4;
      JoinedElements<4> joined;
      const int end = merge.first_place + merge.num_places;
      QUIRE_NO_UNROLL for (int first = merge.first_place; first < end; first += kLoadedAtOnce) {
        int indices[kLoadedAtOnce];
        QUIRE_UNROLL for (int i = 0; i < kLoadedAtOnce; ++i) {
          // Behind the end, the last one is loaded again and left out.
          const int place = first + i < end ? first + i : end - 1;
          indices[i] = rows.Partial(LoadWords(args.places + place), row);
        }
        SoftmaxState states[kLoadedAtOnce];
        Floats<4> values[kLoadedAtOnce];
        QUIRE_UNROLL for (int i = 0; i < kLoadedAtOnce; ++i) {
          states[i] = simt::LoadGlobal(args.partial_states + indices[i]);
          values[i] = LoadFour(args.partial_values + int64_t{indices[i]} * kHeadDim + d);
        }
        QUIRE_UNROLL for (int i = 0; i < kLoadedAtOnce; ++i) {
          if (first + i < end) joined.Join(states[i], values[i]);
        }
      }
      StoreFour<Element, kHeadDim>(rows, row, d, joined);
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_
