#ifndef QUIRE_KERNELS_CUDA_ELEMENT_H_
#define QUIRE_KERNELS_CUDA_ELEMENT_H_

#include <cstdint>

#include "kernels/simt/simt.h"

// The 16-bit types that the kernels multiply, as template parameters. They define how two elements are packed into a
// word, and the product of tiles.

namespace quire::cuda {

struct Bf16 {
  static QUIRE_DEVICE uint32_t Pack(float low, float high) { return simt::PackBf16(low, high); }
  static QUIRE_DEVICE float Low(uint32_t pair) { return simt::LowBf16(pair); }
  static QUIRE_DEVICE float High(uint32_t pair) { return simt::HighBf16(pair); }
  static QUIRE_DEVICE void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    simt::MmaBf16(c, a, b0, b1);
  }
};

struct F16 {
  static QUIRE_DEVICE uint32_t Pack(float low, float high) { return simt::PackF16(low, high); }
  static QUIRE_DEVICE float Low(uint32_t pair) { return simt::LowF16(pair); }
  static QUIRE_DEVICE float High(uint32_t pair) { return simt::HighF16(pair); }
  static QUIRE_DEVICE void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    simt::MmaF16(c, a, b0, b1);
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ELEMENT_H_
