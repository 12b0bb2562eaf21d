#ifndef QUIRE_KERNELS_CUDA_ATTENTION_DECODE_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_DECODE_H_

#include "kernels/cuda/attention_join.h"
#include "kernels/cuda/attention_tile.h"

namespace quire::cuda {

// Attention of up to 16 rows of queries: decode steps, and tokens that a few sequences share. Reading K and V
// dominates. Each of the four warps of a block reads every fourth unit of the context through its own kStages buffers,
// without barriers of the block. The warps are joined at the end. The warp of a unit depends only on the unit's
// position in the context, and so the sums depend only on that, too.
template <typename Element, UnitSize kSize, int kHeadDim, int kStages>
class AttentionDecode {
 public:
  using Args = AttentionArgs;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * simt::kWarpSize;
  static constexpr int kSharedBytes = kWarps * kStages * KvUnit<kHeadDim>{kUnitTokens}.bytes();

  static QUIRE_DEVICE void Run(const AttentionArgs& args) {
    ForEachInRange(args, [&](int item, int kv_head) { RunItem({args, LoadWords(args.items + item), kv_head}); });
  }

 private:
  static constexpr int kUnitBytes = KvUnit<kHeadDim>{kUnitTokens}.bytes();

  static QUIRE_DEVICE void RunItem(const ItemRows& rows) {
    const int warp = simt::WarpIndex();
    char* const stages = simt::SharedMemory() + warp * kStages * kUnitBytes;
    const Queries<kHeadDim> queries(rows, 0);
    const Visible visible(rows, 0);
    Accumulator<Element, kHeadDim> sums;

    // This warp takes the units whose index in the context is `warp` modulo four.
    const int first_unit = rows.item.begin / kUnitTokens, end_unit = (rows.item.end + kUnitTokens - 1) / kUnitTokens;
    int unit = first_unit + ((warp - first_unit) & (kWarps - 1));
    const auto copy = [&](int u, int stage) {
      CopyUnit<kSize, kHeadDim>(rows, u, stages + stage * kUnitBytes, simt::LaneIndex(), simt::kWarpSize);
      simt::CommitCopies();
    };
    for (int s = 0; s < kStages - 1; ++s) copy(unit + s * kWarps, s);
    for (int stage = 0; unit < end_unit; unit += kWarps) {
      simt::WaitCopies<kStages - 2>();
      simt::SyncWarp();
      copy(unit + (kStages - 1) * kWarps, stage == 0 ? kStages - 1 : stage - 1);
      sums.template Attend<1>(queries, visible, stages + stage * kUnitBytes, unit * kUnitTokens, rows.args.scale_log2);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    simt::WaitCopies<0>();
    sums.JoinLanes();
    simt::SyncBlock();  // The buffers are free.
    StoreSums(rows, sums);
    simt::SyncBlock();
    WriteRows(rows);
    simt::SyncBlock();
  }

  // Sums of all warps in shared memory: values [kWarps][16][kHeadDim], then states [kWarps][16].
  static QUIRE_DEVICE float* SharedValues(int warp, int row) {
    return reinterpret_cast<float*>(simt::SharedMemory()) + (warp * kTileRows + row) * kHeadDim;
  }
  static QUIRE_DEVICE SoftmaxState* SharedState(int warp, int row) {
    return reinterpret_cast<SoftmaxState*>(SharedValues(kWarps, 0)) + warp * kTileRows + row;
  }
  static_assert(kWarps * kTileRows * (kHeadDim * sizeof(float) + sizeof(SoftmaxState)) <= kSharedBytes);

  static QUIRE_DEVICE void StoreSums(const ItemRows& rows, const Accumulator<Element, kHeadDim>& sums) {
    const int warp = simt::WarpIndex(), t = simt::LaneIndex() % 4;
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      const int row = simt::LaneIndex() / 4 + 8 * h;
      if (row >= rows.count()) continue;
      QUIRE_UNROLL for (int n = 0; n < kHeadDim / 8; ++n) {
        simt::StoreShared(SharedValues(warp, row) + 8 * n + 2 * t, sums.values[n][2 * h]);
        simt::StoreShared(SharedValues(warp, row) + 8 * n + 2 * t + 1, sums.values[n][2 * h + 1]);
      }
      if (t == 0) simt::StoreShared(SharedState(warp, row), SoftmaxState{sums.max[h], sums.sum[h]});
    }
  }

  // Joins the warps. Writes a partial result, or joins the earlier splits and writes the output. A thread handles pairs
  // of elements.
  static QUIRE_DEVICE void WriteRows(const ItemRows& rows) {
    const AttentionArgs& args = rows.args;
    for (int i = 2 * simt::ThreadIndex(); i < rows.count() * kHeadDim; i += 2 * kThreads) {
      const int row = i / kHeadDim, d = i % kHeadDim;
      JoinedElement split[2], all[2];
      QUIRE_UNROLL for (int warp = 0; warp < kWarps; ++warp) {
        const SoftmaxState state = simt::LoadShared(SharedState(warp, row));
        QUIRE_UNROLL for (int e = 0; e < 2; ++e) split[e].Join(state,
                                                               simt::LoadShared(SharedValues(warp, row) + d + e));
      }
      if (rows.item.partial.first >= 0) {
        const int index = rows.Partial(rows.item.partial, row);
        QUIRE_UNROLL for (int e = 0; e < 2; ++e) {
          simt::StoreGlobal(args.partial_values + int64_t{index} * kHeadDim + d + e, split[e].value);
        }
        if (d == 0) simt::StoreGlobal(args.partial_states + index, split[0].state);
        continue;
      }
      for (int p = 0; p < rows.item.num_places; ++p) {
        const int index = rows.Partial(simt::LoadReadOnly(args.places + rows.item.first_place + p), row);
        QUIRE_UNROLL for (int e = 0; e < 2; ++e) all[e].template JoinPartial<kHeadDim>(args, index, d + e);
      }
      QUIRE_UNROLL for (int e = 0; e < 2; ++e) all[e].Join(split[e].state, split[e].value);
      StoreOutput<Element, kHeadDim>(rows, row, d, all[0].Output(), all[1].Output());
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_DECODE_H_
