// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_BF16_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_BF16_KERNEL_H_

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/linear/fp8_products.h"
#include "kernels/cpu/linear/linear_kernel.h"

// The products of linear_kernel.h with VDPBF16PS, which adds the products of a pair of k to every sum.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

QUIRE_INLINE __m512bh SetPair(const BFloat16* x) {
  int32_t pair;
  memcpy(&pair, x, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

// Reads the pairs of k of the rows of x, one pair after the other. A pointer for each row would need more registers
// than there are, so three rows share a pointer, and all rows share their distance.
template <int kRows>
class PairsOfRows {
 public:
  QUIRE_INLINE PairsOfRows(const BFloat16* x, int64_t stride) : stride_(stride) {
    Unroll<kPointers>([&]<int i>() __attribute__((always_inline)) { first_[i] = x + i * kRowsPerPointer * stride; });
  }
  template <int kRow>
  QUIRE_INLINE __m512bh Get() const {
    return SetPair(first_[kRow / kRowsPerPointer] + kRow % kRowsPerPointer * stride_);
  }
  QUIRE_INLINE void Next() {
    Unroll<kPointers>([&]<int i>() __attribute__((always_inline)) {
      first_[i] += 2;
      asm("" : "+r"(first_[i]));  // Otherwise the compiler computes a pointer for each row before the loop.
    });
  }

 private:
  static constexpr int kRowsPerPointer = 3, kPointers = (kRows + kRowsPerPointer - 1) / kRowsPerPointer;
  const BFloat16* first_[kPointers];
  int64_t stride_;
};

// The rows of x are padded with zeros, so every pair is whole.
template <int kRows, int kVecs, typename At, typename Fetch>
QUIRE_INLINE void AccumulatePairs(const BFloat16* x, int64_t x_stride, Columns columns, const At& at, Fetch fetch,
                                  Tile<kRows, kVecs>* tile) {
  constexpr int kPanels = (kVecs + kPanelVecs - 1) / kPanelVecs;
  const BFloat16* panels[kPanels];
  Unroll<kPanels>([&]<int i>() __attribute__((always_inline)) {
    panels[i] = at.template operator()<i * kPanelVecs>(columns.begin);
  });
  PairsOfRows<kRows> pairs(x + columns.begin, x_stride);
  for (int k = columns.begin; k < columns.end; k += 2) {
    __m512bh w[kVecs];
    Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
      const BFloat16* p = panels[v / kPanelVecs] + v % kPanelVecs * 2 * kLanes;
      fetch.template Prefetch<v>(p);
      w[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
    });
    fetch.NextRow();
    Unroll<kPanels>([&]<int i>() __attribute__((always_inline)) { panels[i] += 2 * kPanelColumns; });
    Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
      const __m512bh pair = pairs.template Get<r>();
      Unroll<kVecs>([&]<int v>() __attribute__((always_inline)) {
        tile->sum[r][v].v = _mm512_dpbf16_ps(tile->sum[r][v].v, pair, w[v]);
      });
    });
    pairs.Next();
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

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_BF16_KERNEL_H_
