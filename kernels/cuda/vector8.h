// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_VECTOR8_H_
#define QUIRE_KERNELS_CUDA_VECTOR8_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/simt/simt.h"

namespace quire::cuda {

// Eight consecutive 16-bit elements as float32. A thread loads and stores them at once (16 bytes, aligned).
template <typename Element>
struct Vector8 {
  float x[8];

  static QUIRE_DEVICE Vector8 Load(const uint16_t* from) {
    const simt::U32x4 words = simt::LoadGlobal(reinterpret_cast<const simt::U32x4*>(from));
    Vector8 result;
    QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
      result.x[2 * i] = Element::Low(words.word[i]);
      result.x[2 * i + 1] = Element::High(words.word[i]);
    }
    return result;
  }

  QUIRE_DEVICE void Store(uint16_t* to) const {
    simt::U32x4 words;
    QUIRE_UNROLL for (int i = 0; i < 4; ++i) words.word[i] = Element::Pack(x[2 * i], x[2 * i + 1]);
    simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(to), words);
  }
};

// Four consecutive values of 32 bits (16 bytes, aligned).
template <typename T>
struct Four {
  T x[4];

  static QUIRE_DEVICE Four Load(const T* from) {
    return Of(simt::LoadGlobal(reinterpret_cast<const simt::U32x4*>(from)));
  }
  // Loads a part of a weight or a table that no kernel writes. A warp whose lanes load eight floats each in two such
  // pieces reads every sector of memory twice; with single floats it would be eight times.
  static QUIRE_DEVICE Four LoadReadOnly(const T* from) {
    return Of(simt::LoadReadOnly(reinterpret_cast<const simt::U32x4*>(from)));
  }
  QUIRE_DEVICE void Store(T* to) const {
    simt::U32x4 words;
    memcpy(words.word, x, sizeof(x));
    simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(to), words);
  }

 private:
  static QUIRE_DEVICE Four Of(const simt::U32x4& words) {
    Four result;
    memcpy(result.x, words.word, sizeof(result.x));
    return result;
  }
};
using Floats4 = Four<float>;

// Gives every lane the sum over the warp, always added in the same order.
QUIRE_DEVICE float WarpSum(float x) {
  QUIRE_UNROLL for (int mask = simt::kWarpSize / 2; mask > 0; mask /= 2) x += simt::ShuffleXor(x, mask);
  return x;
}

// Gives every lane the largest value of the warp, leaving out NaN.
QUIRE_DEVICE float WarpMax(float x) {
  QUIRE_UNROLL for (int mask = simt::kWarpSize / 2; mask > 0; mask /= 2) x = fmaxf(x, simt::ShuffleXor(x, mask));
  return x;
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_VECTOR8_H_
