// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_H_

#include "kernels/cuda/attention_copy.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/attention_tile_int8.h"
#include "kernels/cuda/attention_write.h"

namespace quire::cuda {

// Attention of up to 64 rows of queries: prompts, and tokens that many sequences share. Each of the four warps of a
// block has 16 rows. All warps read the same tiles of K and V, which have 64 tokens (32 for the largest heads) and pass
// through kStages buffers.
template <typename Element, UnitSize kSize, int kHeadDim, int kStages>
class AttentionPrefill {
 public:
  using Args = AttentionArgs;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * simt::kWarpSize;
  static constexpr int kTileUnits = kHeadDim > 128 ? 2 : 4;  // Larger tiles do not fit into the registers.
  static constexpr int kSharedBytes = kStages * kTileUnits * KvUnitOf<Element, kHeadDim>{kUnitTokens}.bytes();

  static QUIRE_DEVICE void Run(const AttentionArgs& args) {
    ForEachInRange(args, [&](int item, int kv_head) { RunItem(args, item, kv_head); });
  }

 private:
  static constexpr int kUnitBytes = KvUnitOf<Element, kHeadDim>{kUnitTokens}.bytes();
  static constexpr int kTileTokens = kTileUnits * kUnitTokens;
  static constexpr int kTileBytes = kTileUnits * kUnitBytes;
  static constexpr int kUnitThreads = kThreads / kTileUnits;  // Threads that copy a unit of a tile.

  static QUIRE_DEVICE void RunItem(const AttentionArgs& args, int item, int kv_head) {
    const ItemRows rows = {args, LoadWords(args.items + item), kv_head};
    const int first_row = simt::WarpIndex() * kTileRows;
    const bool has_rows = first_row < rows.count();
    const Queries<kHeadDim> queries(rows, first_row);
    const Visible visible(rows, first_row);
    Accumulator<Element, kHeadDim> sums;

    const int first_tile = rows.item.begin / kTileTokens, end_tile = (rows.item.end + kTileTokens - 1) / kTileTokens;
    // The threads of a unit copy that unit of every tile.
    const UnitCopier<kSize, KvUnitOf<Element, kHeadDim>, kUnitThreads> copier(rows);
    const int copied_unit = simt::ThreadIndex() / kUnitThreads;
    const auto copy = [&](int tile, int stage) {
      char* const to = simt::SharedMemory() + stage * kTileBytes + copied_unit * kUnitBytes;
      if (tile < end_tile) copier.Start(tile * kTileUnits + copied_unit, to);
      simt::CommitCopies();
    };
    for (int s = 0; s < kStages - 1; ++s) copy(first_tile + s, s);
    for (int tile = first_tile, stage = 0; tile < end_tile; ++tile) {
      simt::WaitCopies<kStages - 2>();
      simt::SyncBlock();
      copy(tile + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      if (has_rows) {
        sums.template Attend<kTileUnits>(queries, visible, simt::SharedMemory() + stage * kTileBytes,
                                         tile * kTileTokens, rows.args);
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    simt::WaitCopies<0>();
    sums.JoinLanes();
    // The item is loaded again, because the loop has no registers to spare.
    WriteRows<Element>({args, LoadWords(args.items + simt::Opaque(item)), kv_head}, first_row, sums);
    simt::SyncBlock();  // The buffers are free.
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_H_
