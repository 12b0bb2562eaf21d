// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_SIMD_H_
#define QUIRE_KERNELS_CPU_ISA_SIMD_H_

#include <utility>

#include "kernels/half_float.h"

// Vectors of 16 floats, for the files that are compiled once per instruction set. Such a file defines
// QUIRE_CPU_NAMESPACE (for example generic, avx2 or avx512) before it includes this header. All code in these headers
// is in that namespace and calls no inline function outside of it. The reason is that the linker keeps one copy of an
// inline function, and an older machine must not run the copy that was compiled with AVX-512.
//
// Every operation rounds once per lane, and reductions add in one fixed order. Therefore the same code gives the same
// bits in every namespace that has fused multiply-add.

#define QUIRE_INLINE inline __attribute__((always_inline))

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kLanes = 16;

// Calls f<0>(), f<1>(), ... f<kCount - 1>(). Loops over registers need constant indices; otherwise GCC keeps the
// "array" of registers in memory.
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
#include "kernels/cpu/isa/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/isa/simd_avx2.h"
#else
#include "kernels/cpu/isa/simd_generic.h"
#endif

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Stores the first n lanes, rounded to T.
template <typename T>
QUIRE_INLINE void StoreFirst(T* p, int n, Vec a) {
  if (n == kLanes) return Store(p, a);
  T rounded[kLanes];
  Store(rounded, a);
  for (int i = 0; i < n; ++i) p[i] = rounded[i];
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ISA_SIMD_H_
