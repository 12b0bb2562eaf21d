#ifndef QUIRE_KERNELS_CPU_SIMD_H_
#define QUIRE_KERNELS_CPU_SIMD_H_

#include <utility>

#include "kernels/half_float.h"

// Vectors of 16 floats, for the files that are compiled once per instruction set. Such a file defines
// QUIRE_CPU_NAMESPACE (generic, avx2 or avx512) before including this. Everything in these headers is in that
// namespace and calls no inline function from outside it: the linker keeps one copy of an inline function, and the copy
// made with AVX-512 must not be the one that an older machine runs.
//
// Every operation rounds once per lane, and reductions add in one fixed order, so that the same code gives the same
// bits in every namespace that has fused multiply-add.

#define QUIRE_INLINE inline __attribute__((always_inline))

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kLanes = 16;

// f<0>(), f<1>(), ... f<kCount - 1>(): loops over registers need indices that are constants, or GCC keeps the "array"
// of registers in memory.
template <int kCount, typename F>
QUIRE_INLINE void Unroll(F&& f) {
  [&]<int... kIndices>(std::integer_sequence<int, kIndices...>) __attribute__((always_inline)) {
    (f.template operator()<kIndices>(), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

QUIRE_INLINE int Min(int a, int b) {
  return a < b ? a : b;
}
QUIRE_INLINE int Max(int a, int b) {
  return a > b ? a : b;
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#if defined(__AVX512F__)
#include "kernels/cpu/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/simd_avx2.h"
#else
#include "kernels/cpu/simd_generic.h"
#endif

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// The first n lanes, rounded.
template <typename T>
QUIRE_INLINE void StoreFirst(T* p, int n, Vec a) {
  if (n == kLanes) return Store(p, a);
  T rounded[kLanes];
  Store(rounded, a);
  for (int i = 0; i < n; ++i) p[i] = rounded[i];
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_SIMD_H_
