// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_WRITE_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_WRITE_H_

#include "kernels/cuda/attention_join.h"
#include "kernels/cuda/attention_tile.h"

namespace quire::cuda {

// Writes what a warp has computed for the rows first_row to first_row + 15 of an item: a partial result, or the output
// after the item's earlier partial results have been joined.
template <typename Element, int kHeadDim>
QUIRE_DEVICE void WriteRows(const ItemRows& rows, int first_row, const SoftmaxRows<kHeadDim>& sums) {
  const AttentionArgs& args = rows.args;
  const int t = simt::LaneIndex() % 4;
  QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
    const int row = first_row + simt::LaneIndex() / 4 + 8 * h;
    if (row >= rows.count()) continue;
    // The lane has pair t of every 8 elements of the row.
    JoinedElements<kHeadDim / 4> own{{sums.max[h], sums.sum[h]}};
    QUIRE_UNROLL for (int i = 0; i < kHeadDim / 4; ++i) own.values.x[i] = sums.values[i / 2][2 * h + i % 2];
    if (rows.item.partial.first >= 0) {
      const int index = rows.Partial(rows.item.partial, row);
      auto* const to = reinterpret_cast<Floats<2>*>(args.partial_values + int64_t{index} * kHeadDim) + t;
      QUIRE_UNROLL for (int n = 0; n < kHeadDim / 8; ++n) {
        simt::StoreGlobal(to + 4 * n, {own.values.x[2 * n], own.values.x[2 * n + 1]});
      }
      if (t == 0) simt::StoreGlobal(args.partial_states + index, own.state);
      continue;
    }
    if (rows.item.num_places > 0) {
      JoinedElements<kHeadDim / 4> all;
      all.template JoinPlaces<kHeadDim>(
          rows, rows.item.first_place, rows.item.num_places, row, [&](const float* values) {
            Floats<kHeadDim / 4> pairs;
            QUIRE_UNROLL for (int n = 0; n < kHeadDim / 8; ++n) {
              const auto pair = simt::LoadGlobal(reinterpret_cast<const Floats<2>*>(values) + 4 * n + t);
              pairs.x[2 * n] = pair.x[0];
              pairs.x[2 * n + 1] = pair.x[1];
            }
            return pairs;
          });
      all.Join(own.state, own.values);
      own = all;
    }
    uint16_t* const out = OutputRow<kHeadDim>(rows, row) + 2 * t;
    const float factor = OutputFactor(own.state);
    QUIRE_UNROLL for (int n = 0; n < kHeadDim / 8; ++n) {
      StorePair<Element>(out + 8 * n, own.values.x[2 * n] * factor, own.values.x[2 * n + 1] * factor);
    }
  }
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_WRITE_H_
