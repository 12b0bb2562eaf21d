// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_SIMD_GENERIC_H_
#define QUIRE_KERNELS_CPU_ISA_SIMD_GENERIC_H_

#include <cstdint>

#include "kernels/half_float.h"

// Only simd.h includes this file. simd_avx512.h describes the operations. They are plain loops over 16 lanes, and the
// compiler turns them into the vectors of the machine's base instruction set.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kRegisters = 4;  // Number of Vecs that fit in registers: sixteen registers of 4 floats each.

struct Vec {
  float v[16];
};

// Also inlines what the function calls. Vecs are passed by reference. Both are for sanitizer builds, which optimise
// little: there, each call of a function of lanes, and each copy of a Vec on the stack, would be checked.
#define QUIRE_FLAT_INLINE __attribute__((flatten)) QUIRE_INLINE

template <typename F>
QUIRE_FLAT_INLINE Vec EachLane(F&& f) {
  Vec result;
  for (int i = 0; i < 16; ++i) result.v[i] = f(i);
  return result;
}
template <typename F>
QUIRE_FLAT_INLINE uint32_t LaneMask(F&& f) {
  uint32_t mask = 0;
  for (int i = 0; i < 16; ++i) mask |= uint32_t(f(i)) << i;
  return mask;
}
QUIRE_INLINE float FusedMultiplyAdd(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;  // This rounds twice. A call into the C library per lane would be hundreds of times slower.
#endif
}

QUIRE_INLINE Vec Zero() {
  return {};
}
QUIRE_INLINE Vec Set(float x) {
  return EachLane([&](int) { return x; });
}

template <typename T>
QUIRE_INLINE Vec Load(const T* p) {
  return EachLane([&](int i) { return ToFloat(p[i]); });
}
QUIRE_INLINE Vec LoadFirst(const float* p, int n) {
  return EachLane([&](int i) { return i < n ? p[i] : 0; });
}
QUIRE_INLINE Vec LoadEven(const BFloat16* p) {
  return EachLane([&](int i) { return ToFloat(p[2 * i]); });
}
QUIRE_INLINE Vec LoadOdd(const BFloat16* p) {
  return EachLane([&](int i) { return ToFloat(p[2 * i + 1]); });
}
template <typename T>
QUIRE_INLINE void Store(T* p, const Vec& a) {
  for (int i = 0; i < 16; ++i) FromFloat(a.v[i], &p[i]);
}
QUIRE_INLINE void StoreFirst(float* p, int n, const Vec& a) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}

QUIRE_INLINE Vec Add(const Vec& a, const Vec& b) {
  return EachLane([&](int i) { return a.v[i] + b.v[i]; });
}
QUIRE_INLINE Vec Sub(const Vec& a, const Vec& b) {
  return EachLane([&](int i) { return a.v[i] - b.v[i]; });
}
QUIRE_INLINE Vec Mul(const Vec& a, const Vec& b) {
  return EachLane([&](int i) { return a.v[i] * b.v[i]; });
}
QUIRE_INLINE Vec Div(const Vec& a, const Vec& b) {
  return EachLane([&](int i) { return a.v[i] / b.v[i]; });
}
QUIRE_INLINE Vec Sqrt(const Vec& a) {
  return EachLane([&](int i) { return __builtin_sqrtf(a.v[i]); });
}
QUIRE_INLINE Vec Fma(const Vec& a, const Vec& b, const Vec& c) {
  return EachLane([&](int i) { return FusedMultiplyAdd(a.v[i], b.v[i], c.v[i]); });
}
QUIRE_INLINE void FmaInPlace(const Vec& a, const Vec& b, Vec* sum) {
  *sum = Fma(a, b, *sum);
}
QUIRE_INLINE Vec Max(const Vec& a, const Vec& b) {
  return EachLane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
QUIRE_INLINE Vec Min(const Vec& a, const Vec& b) {
  return EachLane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}

QUIRE_INLINE uint32_t Greater(const Vec& a, const Vec& b) {
  return LaneMask([&](int i) { return a.v[i] > b.v[i]; });
}
QUIRE_INLINE uint32_t GreaterEqual(const Vec& a, const Vec& b) {
  return LaneMask([&](int i) { return a.v[i] >= b.v[i]; });
}
QUIRE_INLINE uint32_t Equal(const Vec& a, const Vec& b) {
  return LaneMask([&](int i) { return a.v[i] == b.v[i]; });
}
QUIRE_INLINE Vec Select(uint32_t mask, const Vec& a, const Vec& b) {
  return EachLane([&](int i) { return mask >> i & 1 ? b.v[i] : a.v[i]; });
}

// Adding and subtracting 1.5 * 2^23 rounds |a| < 2^22 to a whole number, ties to even.
QUIRE_INLINE Vec Round(const Vec& a) {
  return EachLane([&](int i) { return (a.v[i] + 12582912.0f) - 12582912.0f; });
}
// Where n is not a number, the result is a.
QUIRE_INLINE Vec ScaleByPowerOfTwo(const Vec& a, const Vec& n) {
  return EachLane([&](int i) {
    const int power = n.v[i] == n.v[i] ? int(n.v[i]) : 0;
    return a.v[i] * BitsToFloat(uint32_t(power + 127) << 23);
  });
}
QUIRE_INLINE void SplitExponent(const Vec& a, Vec* mantissa, Vec* exponent) {
  for (int i = 0; i < 16; ++i) {
    const int32_t bits = int32_t(FloatToBits(a.v[i]));
    const int32_t e = (bits - 0x3f3504f3) >> 23;
    mantissa->v[i] = BitsToFloat(uint32_t(bits) - (uint32_t(e) << 23));
    exponent->v[i] = float(e);
  }
}

QUIRE_INLINE float First(const Vec& a) {
  return a.v[0];
}
QUIRE_INLINE float ReduceAdd(Vec a) {
  for (int n = 8; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) a.v[i] = a.v[i] + a.v[i + n];
  }
  return a.v[0];
}
QUIRE_INLINE float ReduceMax(Vec a) {
  for (int n = 8; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) a.v[i] = a.v[i] > a.v[i + n] ? a.v[i] : a.v[i + n];
  }
  return a.v[0];
}

// --- 16 unsigned integers ---

struct UVec {
  uint32_t v[16];
};

template <typename F>
QUIRE_FLAT_INLINE UVec EachULane(F&& f) {
  UVec result;
  for (int i = 0; i < 16; ++i) result.v[i] = f(i);
  return result;
}
QUIRE_INLINE UVec LoadU(const uint32_t* p) {
  return EachULane([&](int i) { return p[i]; });
}
QUIRE_INLINE void StoreU(uint32_t* p, const UVec& a) {
  for (int i = 0; i < 16; ++i) p[i] = a.v[i];
}
QUIRE_INLINE UVec SetU(uint32_t x) {
  return EachULane([&](int) { return x; });
}
QUIRE_INLINE UVec CountFrom(uint32_t first) {
  return EachULane([&](int i) { return first + uint32_t(i); });
}
QUIRE_INLINE UVec Xor(const UVec& a, const UVec& b) {
  return EachULane([&](int i) { return a.v[i] ^ b.v[i]; });
}
QUIRE_INLINE void MultiplyWide(const UVec& a, uint32_t b, UVec* high, UVec* low) {
  *high = EachULane([&](int i) { return uint32_t(uint64_t{a.v[i]} * b >> 32); });
  *low = EachULane([&](int i) { return a.v[i] * b; });
}
QUIRE_INLINE Vec ToFloats(const UVec& a) {
  return EachLane([&](int i) { return float(a.v[i]); });
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ISA_SIMD_GENERIC_H_
