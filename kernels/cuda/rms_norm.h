// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_RMS_NORM_H_
#define QUIRE_KERNELS_CUDA_RMS_NORM_H_

#include <cstdint>

#include "kernels/cuda/vector8.h"

namespace quire::cuda {

// The operation of norm.h on a GPU: y = x / sqrt(mean(x^2) + epsilon) * weight (+ residual) over rows of `dim`, in
// float32. The mean of x may be subtracted from x first.
struct RmsNormKernelArgs {
  const uint16_t* x;    // [num_rows, x_stride]
  const float* weight;  // [dim], aligned to 16 bytes.
  uint16_t* y;          // [num_rows, y_stride]; may be x, or the residual.
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
  float epsilon;
  const uint16_t* residual = nullptr;  // [num_rows, dim] or null.
  // Elements from one row to the next, multiples of 8; 0 means dim.
  int32_t x_stride = 0;
  int32_t y_stride = 0;
  bool subtracts_mean = false;
  // Columns that are stored, at the beginning of each row of y; multiples of 8. 0 columns mean all.
  int32_t y_first = 0;
  int32_t y_cols = 0;
};

// A block handles one row at a time. Sums are always added in the same order: threads, then warps.
template <typename Element>
class RmsNormKernel {
 public:
  using Args = RmsNormKernelArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = kThreads / simt::kWarpSize * sizeof(float);

  static QUIRE_DEVICE void Run(const RmsNormKernelArgs& args) {
    simt::WaitForPriorGrid();
    for (int row = simt::BlockIndex(); row < args.num_rows; row += simt::GridSize()) RunRow(args, row);
    simt::TriggerNextGrid();
  }

 private:
  static QUIRE_DEVICE void RunRow(const RmsNormKernelArgs& args, int row) {
    const uint16_t* const x = args.x + int64_t{row} * (args.x_stride == 0 ? args.dim : args.x_stride);
    uint16_t* const y = args.y + int64_t{row} * (args.y_stride == 0 ? args.dim : args.y_stride);
    const float mean = args.subtracts_mean ? Mean(x, args.dim) : 0;
    float squares = 0;
    for (int d = 8 * simt::ThreadIndex(); d < args.dim; d += 8 * kThreads) {
      const Vector8<Element> v = Vector8<Element>::Load(x + d);
      QUIRE_UNROLL for (int i = 0; i < 8; ++i) squares += (v.x[i] - mean) * (v.x[i] - mean);
    }
    const float factor = simt::ReciprocalSqrt(BlockSum(squares) / float(args.dim) + args.epsilon);
    for (int d = 8 * simt::ThreadIndex(); d < args.dim; d += 8 * kThreads) {
      Vector8<Element> v = Vector8<Element>::Load(x + d);  // The data is still in the first-level cache.
      QUIRE_UNROLL for (int i = 0; i < 8; i += 4) {
        const Floats4 weights = Floats4::LoadReadOnly(args.weight + d + i);
        QUIRE_UNROLL for (int j = 0; j < 4; ++j) v.x[i + j] = (v.x[i + j] - mean) * (factor * weights.x[j]);
      }
      if (args.residual != nullptr) {
        const Vector8<Element> residual = Vector8<Element>::Load(args.residual + int64_t{row} * args.dim + d);
        QUIRE_UNROLL for (int i = 0; i < 8; ++i) v.x[i] += residual.x[i];
      }
      if (args.y_cols == 0) {
        v.Store(y + d);
      } else if (d >= args.y_first && d < args.y_first + args.y_cols) {
        v.Store(y + d - args.y_first);
      }
    }
  }

  static QUIRE_DEVICE float Mean(const uint16_t* x, int dim) {
    float sum = 0;
    for (int d = 8 * simt::ThreadIndex(); d < dim; d += 8 * kThreads) {
      const Vector8<Element> v = Vector8<Element>::Load(x + d);
      QUIRE_UNROLL for (int i = 0; i < 8; ++i) sum += v.x[i];
    }
    return BlockSum(sum) / float(dim);
  }

  // Gives every thread the sum over the block.
  static QUIRE_DEVICE float BlockSum(float x) {
    float* const sums = reinterpret_cast<float*>(simt::SharedMemory());
    x = WarpSum(x);
    if (simt::LaneIndex() == 0) simt::StoreShared(sums + simt::WarpIndex(), x);
    simt::SyncBlock();
    float sum = 0;
    QUIRE_UNROLL for (int warp = 0; warp < kThreads / simt::kWarpSize; ++warp) sum += simt::LoadShared(sums + warp);
    simt::SyncBlock();  // The next row overwrites the sums.
    return sum;
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_RMS_NORM_H_
