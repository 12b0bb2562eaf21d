// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_SLICES_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_SLICES_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_task.h"

// Addition of the sums of slices (kernels/linear.h).
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Adds the earlier sums to that of a slice (NumEarlierSums). Sum i is at `earlier` + i * stride.
QUIRE_INLINE Vec AddEarlier(Vec sum, int num_earlier, const float* earlier, int64_t stride) {
  for (int i = 0; i < num_earlier; ++i) sum = Add(Load(earlier + i * stride), sum);
  return sum;
}

// Does the same for `count` consecutive sums, and stores the results.
inline void AddEarlierRows(int count, const float* sums, int num_earlier, const float* earlier, int64_t stride,
                           float* to) {
  for (int i = 0; i < count; i += kLanes) Store(to + i, AddEarlier(Load(sums + i), num_earlier, earlier + i, stride));
}

// Returns the sum of the vectors at sums + i * stride.
template <int kSlices>
QUIRE_INLINE Vec SliceTree(const float* sums, int64_t stride) {
  if constexpr (kSlices == 1) {
    return Load(sums);
  } else {
    constexpr int kHalf = kSlices / 2;
    return Add(SliceTree<kHalf>(sums, stride), SliceTree<kHalf>(sums + kHalf * stride, stride));
  }
}
template <int kSlices>
QUIRE_INLINE void AddSlices(int count, int64_t stride, float* sums) {
  for (int i = 0; i < count; i += kLanes) Store(sums + i, SliceTree<kSlices>(sums + i, stride));
}

// Adds the sums of all slices to the sums of the first: `count` sums of slice i begin at sums + i * stride.
inline void AddSlices(int num_slices, int count, int64_t stride, float* sums) {
  if (num_slices == 2) AddSlices<2>(count, stride, sums);
  if (num_slices == 4) AddSlices<4>(count, stride, sums);
  if (num_slices == 8) AddSlices<8>(count, stride, sums);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_SLICES_H_
