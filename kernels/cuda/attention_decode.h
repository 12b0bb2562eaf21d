// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_DECODE_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_DECODE_H_

#include "kernels/cuda/attention_copy.h"
#include "kernels/cuda/attention_join.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/attention_tile_int8.h"

namespace quire::cuda {

// Attention of up to 16 rows of queries: decode steps, and tokens that a few sequences share. Reading K and V
// dominates. Each of the kWarps warps of a block reads every kWarps-th unit of the context through its own kStages
// buffers, without barriers of the block. The warps are joined at the end. The warp of a unit depends only on the
// unit's position in the context, and so the sums depend only on that, too.
//
// A block needs at most 96 KiB of shared memory, because blocks get no more than 99 KiB on some devices (sm_86, sm_89,
// sm_120). Therefore it has only two warps for heads of 256.
template <typename Element, UnitSize kSize, int kHeadDim, int kStages>
class AttentionDecode {
 public:
  using Args = AttentionArgs;
  static constexpr int kWarps = kHeadDim <= 128 ? 4 : 2;
  static constexpr int kThreads = kWarps * simt::kWarpSize;
  static constexpr int kSharedBytes = kWarps * kStages * KvUnitOf<Element, kHeadDim>{kUnitTokens}.bytes();
  static_assert(kSharedBytes <= 96 << 10);

  static QUIRE_DEVICE void Run(const AttentionArgs& args) {
    ForEachInRange(args, [&](int item, int kv_head) { RunItem({args, LoadWords(args.items + item), kv_head}); });
  }

 private:
  static constexpr int kUnitBytes = KvUnitOf<Element, kHeadDim>{kUnitTokens}.bytes();

  static QUIRE_DEVICE void RunItem(const ItemRows& rows) {
    const int warp = simt::WarpIndex();
    char* const stages = simt::SharedMemory() + warp * kStages * kUnitBytes;
    const Queries<kHeadDim> queries(rows, 0);
    const Visible visible(rows, 0);
    Accumulator<Element, kHeadDim> sums;

    // This warp takes the units whose index in the context is `warp` modulo kWarps.
    const int first_unit = rows.item.begin / kUnitTokens, end_unit = (rows.item.end + kUnitTokens - 1) / kUnitTokens;
    int unit = first_unit + ((warp - first_unit) & (kWarps - 1));
    const UnitCopier<kSize, KvUnitOf<Element, kHeadDim>, simt::kWarpSize> copier(rows);
    const auto copy = [&](int u, int stage) {
      if (u < end_unit) copier.Start(u, stages + stage * kUnitBytes);
      simt::CommitCopies();
    };
    QUIRE_NO_UNROLL for (int s = 0; s < kStages - 1; ++s) copy(unit + s * kWarps, s);
    for (int stage = 0; unit < end_unit; unit += kWarps) {
      simt::WaitCopies<kStages - 2>();
      simt::SyncWarp();
      copy(unit + (kStages - 1) * kWarps, stage == 0 ? kStages - 1 : stage - 1);
      sums.template Attend<1>(queries, visible, stages + stage * kUnitBytes, unit * kUnitTokens, rows.args);
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

  // Sums of all warps in shared memory: values [kWarps][16][kRowFloats], of which the last of a row are not used, then
  // states [kWarps][16]. With rows of this length, lanes of different rows store to different banks.
  static constexpr int kRowFloats = kHeadDim + 8;
  static QUIRE_DEVICE float* SharedValues(int warp, int row) {
    return reinterpret_cast<float*>(simt::SharedMemory()) + (warp * kTileRows + row) * kRowFloats;
  }
  static QUIRE_DEVICE SoftmaxState* SharedState(int warp, int row) {
    return reinterpret_cast<SoftmaxState*>(SharedValues(kWarps, 0)) + warp * kTileRows + row;
  }
  static_assert(kWarps * kTileRows * (kRowFloats * sizeof(float) + sizeof(SoftmaxState)) <= kSharedBytes);

  static QUIRE_DEVICE void StoreSums(const ItemRows& rows, const Accumulator<Element, kHeadDim>& sums) {
    const int warp = simt::WarpIndex(), t = simt::LaneIndex() % 4;
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      const int row = simt::LaneIndex() / 4 + 8 * h;
      if (row >= rows.count()) continue;
      auto* const to = reinterpret_cast<Floats<2>*>(SharedValues(warp, row)) + t;
      QUIRE_UNROLL for (int n = 0; n < kHeadDim / 8; ++n) {
        simt::StoreShared(to + 4 * n, {sums.values[n][2 * h], sums.values[n][2 * h + 1]});
      }
      if (t == 0) simt::StoreShared(SharedState(warp, row), {sums.max[h], sums.sum[h]});
    }
  }

  // Joins the warps. Writes a partial result, or joins the earlier splits and writes the output. A thread handles four
  // elements at a time.
  static QUIRE_DEVICE void WriteRows(const ItemRows& rows) {
    const AttentionArgs& args = rows.args;
    constexpr int kRowQuads = kHeadDim / 4;
    for (int i = simt::ThreadIndex(); i < rows.count() * kRowQuads; i += kThreads) {
      const int row = i / kRowQuads, d = i % kRowQuads * 4;
      JoinedElements<4> split, all;
      QUIRE_UNROLL for (int warp = 0; warp < kWarps; ++warp) {
        split.Join(simt::LoadShared(SharedState(warp, row)),
                   simt::LoadShared(reinterpret_cast<const Floats<4>*>(SharedValues(warp, row) + d)));
      }
      if (rows.item.partial.first >= 0) {
        const int index = rows.Partial(rows.item.partial, row);
        float* const to = args.partial_values + int64_t{index} * kHeadDim + d;
        simt::StoreGlobal(reinterpret_cast<Floats<4>*>(to), split.values);
        if (d == 0) simt::StoreGlobal(args.partial_states + index, split.state);
        continue;
      }
      all.template JoinPlaces<kHeadDim>(rows, rows.item.first_place, rows.item.num_places, row,
                                        [&](const float* values) { return LoadFour(values + d); });
      all.Join(split.state, split.values);
      StoreFour<Element>(OutputRow<kHeadDim>(rows, row) + d, all.values, OutputFactor(all.state));
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_DECODE_H_
