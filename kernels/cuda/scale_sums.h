// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_SCALE_SUMS_H_
#define QUIRE_KERNELS_CUDA_SCALE_SUMS_H_

#include <cstdint>

#include "kernels/cuda/byte_numbers.h"
#include "kernels/cuda/split_sum.h"
#include "kernels/cuda/vector8.h"

namespace quire::cuda {

// y[m][n] = float(sum over the splits of sums[split][m][n]) * (x_scales[m] * w_scales[n]) (+ y[m][n]). A sum of whole
// numbers is exact, and each of the products in float32 is rounded by itself, as on the CPU. Sums of FP8 are added in
// ascending order. With scales of blocks, they have been scaled already: y[m][n] is their sum (+ y[m][n]).
struct ScaleSumsArgs {
  const void* sums;       // [num_splits][split_stride] of Numbers::Sum, in each [num_tokens, sum_columns].
  const float* x_scales;  // [num_tokens]; it is not used with scales of blocks.
  const float* w_scales;  // [sum_columns]; it is not used with scales of blocks.
  void* y;                // [num_tokens, num_columns] float32 or elements; a row begins y_stride after the one before.
  int64_t split_stride;
  int64_t y_stride;
  int32_t num_splits;
  int32_t sum_columns;  // A multiple of 8, at least num_columns.
  int32_t num_tokens;
  int32_t num_columns;
  bool y_is_float;
  bool adds_to_y;
};

// A thread handles eight columns of a token at a time. All arrays are aligned to 16 bytes.
template <typename Element, typename Numbers>
class ScaleSumsKernel {
  using Sum = typename Numbers::Sum;

 public:
  using Args = ScaleSumsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;
  static constexpr int kColumns = 8;

  static QUIRE_DEVICE void Run(const ScaleSumsArgs& args) {
    simt::WaitForPriorGrid();
    const int chunks_per_row = (args.num_columns + kColumns - 1) / kColumns;
    const int64_t num_chunks = int64_t{args.num_tokens} * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      RunChunk(args, int(i / chunks_per_row), int(i % chunks_per_row) * kColumns);
    }
    simt::TriggerNextGrid();
  }

 private:
  static QUIRE_DEVICE void RunChunk(const ScaleSumsArgs& args, int token, int column) {
    Sum sums[kColumns] = {};
    const Sum* from = static_cast<const Sum*>(args.sums) + int64_t{token} * args.sum_columns + column;
    QUIRE_NO_UNROLL for (int split = 0; split < args.num_splits; ++split, from += args.split_stride) {
      QUIRE_UNROLL for (int j = 0; j < kColumns; j += 4) {
        const Four<Sum> four = Four<Sum>::Load(from + j);
        QUIRE_UNROLL for (int k = 0; k < 4; ++k) sums[j + k] = Numbers::Add(sums[j + k], four.x[k]);
      }
    }
    float products[kColumns];
    if constexpr (Numbers::kHasBlockScales) {
      QUIRE_UNROLL for (int j = 0; j < kColumns; ++j) products[j] = sums[j];
    } else {
      const float x_scale = simt::LoadGlobal(args.x_scales + token);
      QUIRE_UNROLL for (int j = 0; j < kColumns; j += 4) {
        const Floats4 w_scales = Floats4::LoadReadOnly(args.w_scales + column + j);
        QUIRE_UNROLL for (int k = 0; k < 4; ++k) {
          products[j + k] = ScaledSum(sums[j + k], x_scale, w_scales.x[k]);
        }
      }
    }
    const int64_t at = int64_t{token} * args.y_stride + column;
    if (column + kColumns <= args.num_columns && args.y_stride % kColumns == 0) {
      StoreEightProducts<Element>(args.y, args.y_is_float, args.adds_to_y, at, products);
    } else {
      QUIRE_UNROLL for (int j = 0; j < kColumns; ++j) {
        if (column + j >= args.num_columns) break;
        StoreProduct<Element>(args.y, args.y_is_float, args.adds_to_y, at + j, products[j]);
      }
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_SCALE_SUMS_H_
