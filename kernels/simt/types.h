// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_TYPES_H_
#define QUIRE_KERNELS_SIMT_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace quire::simt {

constexpr int kWarpSize = 32;

// True when setmaxnreg can give a thread kCount registers (PTX ISA).
template <int kCount>
constexpr bool kIsRegisterCount = kCount % 8 == 0 && kCount >= 24 && kCount <= 256;

// Types for one 8-byte or 16-byte access.
struct alignas(8) U32x2 {
  uint32_t word[2];
};
struct alignas(16) U32x4 {
  uint32_t word[4];
};

// A parameter of this type does not take part in the deduction of T, so that StoreGlobal(float_pointer, 0) is valid.
template <typename T>
struct SameType {
  using Type = T;
};

template <typename T>
constexpr bool kIsAccessSize = sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16;

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_TYPES_H_
