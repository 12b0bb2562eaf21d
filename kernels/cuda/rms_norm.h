// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_RMS_NORM_H_
#define QUIRE_KERNELS_CUDA_RMS_NORM_H_

#include <cstdint>

#include "kernels/cuda/vector8.h"

namespace quire::cuda {

// y = x / sqrt(mean(x^2) + epsilon) * weight over rows of `dim`, in float32.
struct RmsNormKernelArgs {
  const uint16_t* x;    // [num_rows, dim]
  const float* weight;  // [dim], aligned to 16 bytes.
  uint16_t* y;          // [num_rows, dim]; may be x.
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
  float epsilon;
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
    const uint16_t* const x = args.x + int64_t{row} * args.dim;
    uint16_t* const y = args.y + int64_t{row} * args.dim;
    float squares = 0;
    for (int d = 8 * simt::ThreadIndex(); d < args.dim; d += 8 * kThreads) {
      const Vector8<Element> v = Vector8<Element>::Load(x + d);
      QUIRE_UNROLL for (int i = 0; i < 8; ++i) squares += v.x[i] * v.x[i];
    }
    const float factor = simt::ReciprocalSqrt(BlockSum(squares) / float(args.dim) + args.epsilon);
    for (int d = 8 * simt::ThreadIndex(); d < args.dim; d += 8 * kThreads) {
      Vector8<Element> v = Vector8<Element>::Load(x + d);  // The data is still in the first-level cache.
      QUIRE_UNROLL for (int i = 0; i < 8; i += 4) {
        const Floats4 weights = Floats4::LoadReadOnly(args.weight + d + i);
        QUIRE_UNROLL for (int j = 0; j < 4; ++j) v.x[i + j] *= factor * weights.x[j];
      }
      v.Store(y + d);
    }
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
