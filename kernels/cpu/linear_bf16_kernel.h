// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_BF16_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_BF16_KERNEL_H_

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/fp8_products.h"
#include "kernels/cpu/linear_kernel.h"

// The products of linear_kernel.h with VDPBF16PS, which adds the products of a pair of k to every sum.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

QUIRE_INLINE __m512bh SetPair(const BFloat16* x) {
  int32_t pair;
  memcpy(&pair, x, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

// The rows of x are padded with zeros, so every pair is whole.
template <int kRows, int kVecs, typename At, typename Fetch>
QUIRE_INLINE void AccumulatePairs(const BFloat16* x, int64_t x_stride, Columns columns, const At& at, Fetch fetch,
                                  Tile<kRows, kVecs>* tile) {
  __m512bh w[kVecs];
  for (int k = columns.begin; k < columns.end; k += 2) {
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const BFloat16* p = at.template operator()<v>(k);
      fetch.template Prefetch<v>(p);
      w[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
    });
    fetch.NextRow();
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      const __m512bh pair = SetPair(x + r * x_stride + k);
      Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
        tile->sum[r][v].v = _mm512_dpbf16_ps(tile->sum[r][v].v, pair, w[v]);
      });
    });
  }
}

template <bool kIsWhole, int kFirst, int kCount, int kRows, int kVecs>
QUIRE_INLINE void AddPair(const BFloat16* x, int64_t x_stride, const WeightPairs (&pairs)[kCount],
                          Tile<kRows, kVecs>* tile) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    const __m512bh pair = SetPair(x + r * x_stride);
    Unroll<kCount>([&]<int v>() __attribute__((always_inline)) {
      Vec* const sum = &tile->sum[r][kFirst + v];
      sum->v = _mm512_dpbf16_ps(sum->v, pair, reinterpret_cast<__m512bh>(pairs[v].v));
    });
  });
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_BF16_KERNEL_H_
