// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_

#include "kernels/cuda/attention_join.h"

namespace quire::cuda {

// Joins the partial results of rows that were cut at their splits, in ascending order, and writes their output. The
// bits are the same as with JoinedElements::JoinPlaces, which joins one partial result after the other.
//
// A load takes much longer than joining what it returns, so the loads of a row do not wait for each other. The lanes of
// a row first load the states of one partial result each, and compute with which factors each one is joined. Then they
// load the elements of several partial results at once. Each warp works on rows of its own.
template <typename Element, int kHeadDim>
class AttentionMergeKernel {
  // JoinedElements::Join joins a partial result to those before it in this way.
  struct alignas(16) Part {
    int index;  // The index of the partial result.
    float into;
    float weight;
    float weighted_sum;
  };

 public:
  using Args = AttentionArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = kThreads * sizeof(Part);

  static QUIRE_DEVICE void Run(const AttentionArgs& args) {
    ForEachInRange(args, [&](int merge, int kv_head) { RunMerge(args, LoadWords(args.merges + merge), kv_head); });
  }

 private:
  // The lanes of a row, each with four elements of every piece of the row. The last lanes may have none.
  static constexpr int kRowLanes = kHeadDim > 128 ? 32 : kHeadDim > 64 ? 16 : kHeadDim >= 32 ? 8 : 4;
  static constexpr int kRowsOfWarp = simt::kWarpSize / kRowLanes;
  static constexpr int kPieceElements = 4 * kRowLanes;
  static constexpr int kPieces = (kHeadDim + kPieceElements - 1) / kPieceElements;
  static constexpr int kLoadedAtOnce = 4;
  static_assert(simt::kWarpSize % kRowLanes == 0 && kRowLanes % kLoadedAtOnce == 0);

  static QUIRE_DEVICE void RunMerge(const AttentionArgs& args, const AttentionMerge& merge, int kv_head) {
    AttentionItem item{};
    item.first_row = merge.first_row;
    item.num_rows = merge.num_rows;
    const ItemRows rows = {args, item, kv_head};
    const int first_of_warp = simt::WarpIndex() * kRowsOfWarp;
    for (int first = first_of_warp; first < rows.count(); first += kThreads / simt::kWarpSize * kRowsOfWarp) {
      JoinRow(rows, merge, first + simt::LaneIndex() / kRowLanes);
    }
  }

  static QUIRE_DEVICE void JoinRow(const ItemRows& rows, const AttentionMerge& merge, int row) {
    const int lane = simt::LaneIndex() % kRowLanes;
    JoinedElements<4> joined[kPieces];
    QUIRE_NO_UNROLL for (int done = 0; done < merge.num_places; done += kRowLanes) {
      const int left = merge.num_places - done;
      float max = joined[0].state.max;
      const int count = FindParts(rows, merge.first_place + done, left < kRowLanes ? left : kRowLanes, row, &max);
      int i = 0;
      QUIRE_NO_UNROLL for (; i + kLoadedAtOnce <= count; i += kLoadedAtOnce) JoinParts<kLoadedAtOnce>(rows, i, joined);
      QUIRE_NO_UNROLL for (; i < count; ++i) JoinParts<1>(rows, i, joined);
      joined[0].state.max = max;
    }
    if (row >= rows.count()) return;
    uint16_t* const out = OutputRow<kHeadDim>(rows, row) + 4 * lane;
    const float factor = OutputFactor(joined[0].state);
    QUIRE_UNROLL for (int piece = 0; piece < kPieces; ++piece) {
      if (HasElements(piece, lane)) StoreFour<Element>(out + piece * kPieceElements, joined[piece].values, factor);
    }
  }

  static QUIRE_DEVICE bool HasElements(int piece, int lane) {
    return kHeadDim % kPieceElements == 0 || piece * kPieceElements + 4 * lane < kHeadDim;
  }

  // Returns the parts of the lane's row.
  static QUIRE_DEVICE Part* Parts() {
    return reinterpret_cast<Part*>(simt::SharedMemory()) + simt::ThreadIndex() / kRowLanes * kRowLanes;
  }

  // Fills the row's parts from the places [first_place, first_place + num_places), whose partial results are joined
  // after earlier ones with the largest score *max. Partial results of rows that saw no token are left out. Returns
  // the number of parts, and in *max the largest score of all.
  static QUIRE_DEVICE int FindParts(const ItemRows& rows, int first_place, int num_places, int row, float* max) {
    const AttentionArgs& args = rows.args;
    const int lane = simt::LaneIndex() % kRowLanes, first_lane = simt::LaneIndex() - lane;
    Part part{};
    SoftmaxState state = {kMinusInfinity, 0};
    if (lane < num_places && row < rows.count()) {
      part.index = rows.Partial(LoadWords(args.places + first_place + lane), row);
      state = simt::LoadGlobal(args.partial_states + part.index);
    }
    const bool is_joined = state.sum != 0;
    const uint32_t all_lanes = uint32_t((uint64_t{1} << kRowLanes) - 1);
    const uint32_t joined_lanes = simt::Ballot(is_joined) >> first_lane & all_lanes;
    float largest = is_joined ? state.max : kMinusInfinity;  // Of this result and all before it.
    QUIRE_UNROLL for (int distance = 1; distance < kRowLanes; distance *= 2) {
      if (distance >= num_places) break;
      const float earlier = simt::ShuffleUp(largest, distance);
      if (lane >= distance && earlier > largest) largest = earlier;
    }
    if (*max > largest) largest = *max;
    float earlier = simt::ShuffleUp(largest, 1);
    if (lane == 0) earlier = *max;
    part.into = simt::Exp2(earlier - largest);
    part.weight = simt::Exp2(state.max - largest);
    part.weighted_sum = state.sum * part.weight;
    *max = simt::Shuffle(largest, first_lane + kRowLanes - 1);
    simt::SyncWarp();  // All lanes have read the parts before these.
    if (is_joined) simt::StoreShared(Parts() + simt::CountBits(joined_lanes & ((1u << lane) - 1)), part);
    simt::SyncWarp();
    return simt::CountBits(joined_lanes);
  }

  // Joins the row's parts [first, first + kCount).
  template <int kCount>
  static QUIRE_DEVICE void JoinParts(const ItemRows& rows, int first, JoinedElements<4> (&joined)[kPieces]) {
    const int lane = simt::LaneIndex() % kRowLanes;
    Part parts[kCount];
    Floats<4> values[kCount][kPieces];
    QUIRE_UNROLL for (int i = 0; i < kCount; ++i) {
      parts[i] = simt::LoadShared(Parts() + first + i);
      const float* const elements = rows.args.partial_values + int64_t{parts[i].index} * kHeadDim + 4 * lane;
      QUIRE_UNROLL for (int piece = 0; piece < kPieces; ++piece) {
        values[i][piece] = HasElements(piece, lane) ? LoadFour(elements + piece * kPieceElements) : Floats<4>{};
      }
    }
    QUIRE_UNROLL for (int i = 0; i < kCount; ++i) {
      joined[0].state.sum = __builtin_fmaf(joined[0].state.sum, parts[i].into, parts[i].weighted_sum);
      QUIRE_UNROLL for (int piece = 0; piece < kPieces; ++piece) {
        joined[piece].AddValues(parts[i].into, parts[i].weight, values[i][piece]);
      }
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_MERGE_H_
