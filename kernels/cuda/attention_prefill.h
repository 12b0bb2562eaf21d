#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_H_

#include "kernels/cuda/attention_join.h"
#include "kernels/cuda/attention_tile.h"

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
  static constexpr int kSharedBytes = kStages * kTileUnits * KvUnit<kHeadDim>{kUnitTokens}.bytes();

  static QUIRE_DEVICE void Run(const AttentionArgs& args) {
    ForEachInRange(args, [&](int item, int kv_head) { RunItem({args, LoadWords(args.items + item), kv_head}); });
  }

 private:
  static constexpr int kUnitBytes = KvUnit<kHeadDim>{kUnitTokens}.bytes();
  static constexpr int kTileTokens = kTileUnits * kUnitTokens;
  static constexpr int kTileBytes = kTileUnits * kUnitBytes;

  static QUIRE_DEVICE void RunItem(const ItemRows& rows) {
    const int first_row = simt::WarpIndex() * kTileRows;
    const Queries<kHeadDim> queries(rows, first_row);
    const Visible visible(rows, first_row);
    Accumulator<Element, kHeadDim> sums;

    const int first_tile = rows.item.begin / kTileTokens, end_tile = (rows.item.end + kTileTokens - 1) / kTileTokens;
    for (int s = 0; s < kStages - 1; ++s) CopyTile(rows, first_tile + s, s);
    for (int tile = first_tile, stage = 0; tile < end_tile; ++tile) {
      simt::WaitCopies<kStages - 2>();
      simt::SyncBlock();
      CopyTile(rows, tile + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      sums.template Attend<kTileUnits>(queries, visible, simt::SharedMemory() + stage * kTileBytes, tile * kTileTokens,
                                       rows.args.scale_log2);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    simt::WaitCopies<0>();
    sums.JoinLanes();
    WriteRows(rows, first_row, sums);
    simt::SyncBlock();  // The buffers are free.
  }

  static QUIRE_DEVICE void CopyTile(const ItemRows& rows, int tile, int stage) {
    char* const to = simt::SharedMemory() + stage * kTileBytes;
    for (int u = 0; u < kTileUnits; ++u) {
      CopyUnit<kSize, kHeadDim>(rows, tile * kTileUnits + u, to + u * kUnitBytes, simt::ThreadIndex(), kThreads);
    }
    simt::CommitCopies();
  }

  static QUIRE_DEVICE void WriteRows(const ItemRows& rows, int first_row, const Accumulator<Element, kHeadDim>& sums) {
    const AttentionArgs& args = rows.args;
    const int t = simt::LaneIndex() % 4;
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      const int row = first_row + simt::LaneIndex() / 4 + 8 * h;
      if (row >= rows.count()) continue;
      const SoftmaxState state = {sums.max[h], sums.sum[h]};
      const bool is_partial = rows.item.partial.first >= 0;
      const int partial = is_partial ? rows.Partial(rows.item.partial, row) : 0;
      if (is_partial && t == 0) simt::StoreGlobal(args.partial_states + partial, state);
      QUIRE_UNROLL for (int n = 0; n < kHeadDim / 8; ++n) {
        const int d = 8 * n + 2 * t;
        if (is_partial) {
          float* const to = args.partial_values + int64_t{partial} * kHeadDim + d;
          simt::StoreGlobal(to, sums.values[n][2 * h]);
          simt::StoreGlobal(to + 1, sums.values[n][2 * h + 1]);
          continue;
        }
        JoinedElement joined[2];
        for (int p = 0; p < rows.item.num_places; ++p) {
          const int index = rows.Partial(simt::LoadReadOnly(args.places + rows.item.first_place + p), row);
          QUIRE_UNROLL for (int e = 0; e < 2; ++e) joined[e].template JoinPartial<kHeadDim>(args, index, d + e);
        }
        QUIRE_UNROLL for (int e = 0; e < 2; ++e) joined[e].Join(state, sums.values[n][2 * h + e]);
        StoreOutput<Element, kHeadDim>(rows, row, d, joined[0].Output(), joined[1].Output());
      }
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_H_
