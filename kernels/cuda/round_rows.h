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

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROUND_ROWS_H_
