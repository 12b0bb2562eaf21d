// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ROUND_ROWS_H_
#define QUIRE_KERNELS_CUDA_ROUND_ROWS_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/byte_numbers.h"
#include "kernels/cuda/vector8.h"

namespace quire::cuda {

// Rounds rows to numbers of 8 bits, each row with a scale of its own (byte_numbers.h), for products by weights of the
// same kind.
struct RoundRowsArgs {
  const uint16_t* x;  // [num_rows, dim]
  int8_t* y;          // [num_rows, padded_dim]; the numbers behind dim become 0.
  float* scales;      // [num_rows]
  int32_t num_rows;
  int32_t dim;         // A multiple of 8.
  int32_t padded_dim;  // A multiple of 8.
};

// Rounds rows in groups of 128 columns, each with a scale of its own.
struct RoundGroupsArgs {
  const uint16_t* x;  // [num_rows, dim]
  int8_t* y;          // [padded_rows, dim]
  float* scales;      // [dim / 128][padded_rows]
  int32_t num_rows;
  int32_t padded_rows;  // At least num_rows. The rows that x does not have become zeros with a scale of 0.
  int32_t dim;          // A multiple of 128.
};

// A block handles one row at a time.
template <typename Element, typename Numbers>
class RoundRowsKernel {
 public:
  using Args = RoundRowsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = kThreads / simt::kWarpSize * sizeof(float);

  static QUIRE_DEVICE void Run(const RoundRowsArgs& args) {
    simt::WaitForPriorGrid();
    for (int row = simt::BlockIndex(); row < args.num_rows; row += simt::GridSize()) RunRow(args, row);
    simt::TriggerNextGrid();
  }

 private:
  static QUIRE_DEVICE void RunRow(const RoundRowsArgs& args, int row) {
    const uint16_t* const x = args.x + int64_t{row} * args.dim;
    int8_t* const y = args.y + int64_t{row} * args.padded_dim;
    float largest = 0, mark = 0;
    for (int d = 8 * simt::ThreadIndex(); d < args.dim; d += 8 * kThreads) {
      const Vector8<Element> v = Vector8<Element>::Load(x + d);
      QUIRE_UNROLL for (int i = 0; i < 8; ++i) {
        largest = fmaxf(largest, fabsf(v.x[i]));
        mark += v.x[i] * 0;  // Becomes NaN with an infinity or a NaN, and stays 0 otherwise.
      }
    }
    using Rounding = typename Numbers::Rounding;
    const Rounding rounding = Rounding::Of(LargestOfBlock(WarpMax(largest) + WarpSum(mark)));
    for (int d = 8 * simt::ThreadIndex(); d < args.padded_dim; d += 8 * kThreads) {
      simt::U32x2 words = {};
      if (d < args.dim) {
        const Vector8<Element> v = Vector8<Element>::Load(x + d);  // The data is still in the first-level cache.
        words = {rounding.RoundFour(v.x), rounding.RoundFour(v.x + 4)};
      }
      simt::StoreGlobal(reinterpret_cast<simt::U32x2*>(y + d), words);
    }
    if (simt::ThreadIndex() == 0) simt::StoreGlobal(args.scales + row, rounding.scale);
  }

  // Gives every thread the largest value of all warps, or NaN if one of them has NaN.
  static QUIRE_DEVICE float LargestOfBlock(float of_warp) {
    float* const of_warps = reinterpret_cast<float*>(simt::SharedMemory());
    if (simt::LaneIndex() == 0) simt::StoreShared(of_warps + simt::WarpIndex(), of_warp);
    simt::SyncBlock();
    float largest = 0, mark = 0;
    QUIRE_UNROLL for (int warp = 0; warp < kThreads / simt::kWarpSize; ++warp) {
      const float value = simt::LoadShared(of_warps + warp);
      largest = fmaxf(largest, value);
      mark += value * 0;
    }
    simt::SyncBlock();  // The next row overwrites the values.
    return largest + mark;
  }
};

constexpr int kRoundedGroupsPerBlock = 16;

// Half a warp handles one group at a time.
template <typename Element, typename Numbers>
class RoundGroupsKernel {
 public:
  using Args = RoundGroupsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;
  static constexpr int kGroupThreads = kScaledColumns / 8;
  static constexpr int kGroupsPerBlock = kThreads / kGroupThreads;
  static_assert(kGroupsPerBlock == kRoundedGroupsPerBlock);

  static QUIRE_DEVICE void Run(const RoundGroupsArgs& args) {
    simt::WaitForPriorGrid();
    // All lanes of a warp take the same number of turns.
    const int num_groups = args.padded_rows * (args.dim / kScaledColumns);
    for (int first = simt::BlockIndex() * kGroupsPerBlock; first < num_groups;
         first += simt::GridSize() * kGroupsPerBlock) {
      RunGroup(args, first + simt::ThreadIndex() / kGroupThreads, num_groups);
    }
    simt::TriggerNextGrid();
  }

 private:
  static QUIRE_DEVICE void RunGroup(const RoundGroupsArgs& args, int group, int num_groups) {
    const int groups_per_row = args.dim / kScaledColumns, row = group / groups_per_row;
    const int64_t at = int64_t{group} * kScaledColumns + 8 * (simt::ThreadIndex() % kGroupThreads);
    Vector8<Element> v = {};
    if (row < args.num_rows) v = Vector8<Element>::Load(args.x + at);
    float largest = 0, mark = 0;
    QUIRE_UNROLL for (int i = 0; i < 8; ++i) {
      largest = fmaxf(largest, fabsf(v.x[i]));
      mark += v.x[i] * 0;  // Becomes NaN with an infinity or a NaN, and stays 0 otherwise.
    }
    QUIRE_UNROLL for (int mask = kGroupThreads / 2; mask > 0; mask /= 2) {
      largest = fmaxf(largest, simt::ShuffleXor(largest, mask));
      mark += simt::ShuffleXor(mark, mask);
    }
    if (group >= num_groups) return;
    const auto rounding = Numbers::Rounding::Of(largest + mark);
    const simt::U32x2 words = {rounding.RoundFour(v.x), rounding.RoundFour(v.x + 4)};
    simt::StoreGlobal(reinterpret_cast<simt::U32x2*>(args.y + at), words);
    if (simt::ThreadIndex() % kGroupThreads == 0) {
      const int64_t column_block = group % groups_per_row;
      simt::StoreGlobal(args.scales + column_block * args.padded_rows + row, rounding.scale);
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROUND_ROWS_H_
