// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ELEMENT_H_
#define QUIRE_KERNELS_CUDA_ELEMENT_H_

#include <cstdint>

#include "kernels/simt/simt.h"

// The types that the kernels multiply, as template parameters. They have 16 bits. They define how two elements are
// packed into a word, the product of tiles, and what the conversion of quantized weights needs (packed_weights.h).

namespace quire::cuda {

struct Bf16 {
  static constexpr int kKvBytes = 2;  // Size of a number of K and V.
  // A pair whose last bits can hold a whole number: kMagic | n is 128 + n for n below 128.
  static constexpr uint32_t kMagic = 0x43004300u;
  static constexpr uint32_t kMinusOne = 0xbf80bf80u;
  static QUIRE_DEVICE uint32_t Fma(uint32_t a, uint32_t b, uint32_t c) { return simt::FmaBf16(a, b, c); }
  static QUIRE_DEVICE uint32_t Pack(float low, float high) { return simt::PackBf16(low, high); }
  static QUIRE_DEVICE float Low(uint32_t pair) { return simt::LowBf16(pair); }
  static QUIRE_DEVICE float High(uint32_t pair) { return simt::HighBf16(pair); }
  static QUIRE_DEVICE void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    simt::MmaBf16(c, a, b0, b1);
  }
};

struct F16 {
  static constexpr int kKvBytes = 2;
  static constexpr uint32_t kMagic = 0x64006400u;  // kMagic | n is 1024 + n for n below 1024.
  static constexpr uint32_t kMinusOne = 0xbc00bc00u;
  static QUIRE_DEVICE uint32_t Fma(uint32_t a, uint32_t b, uint32_t c) { return simt::FmaF16(a, b, c); }
  static QUIRE_DEVICE uint32_t Pack(float low, float high) { return simt::PackF16(low, high); }
  static QUIRE_DEVICE float Low(uint32_t pair) { return simt::LowF16(pair); }
  static QUIRE_DEVICE float High(uint32_t pair) { return simt::HighF16(pair); }
  static QUIRE_DEVICE void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    simt::MmaF16(c, a, b0, b1);
  }
};

// Queries, outputs and the rows of a step of type Element, with K and V of int8 in the pool (kv_unit.h).
template <typename Element>
struct Int8Kv : Element {
  static constexpr int kKvBytes = 1;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ELEMENT_H_
