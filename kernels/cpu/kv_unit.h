// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_KV_UNIT_H_
#define QUIRE_KERNELS_CPU_KV_UNIT_H_

#include "kernels/kv_layout.h"

namespace quire::cpu {

// The order of elements inside a unit on the CPU. Attention reads a vectorised unit directly:
//   float32, float16: K [head_dim][16], V [16][head_dim]
//   bfloat16, int8:   K [head_dim / 2][16][2], V [8][head_dim][2], in the pairs that dot products need
// Other units have fewer than 16 tokens, or heads that do not fill vectors. They are K [tokens][head_dim], V
// [tokens][head_dim], and attention gathers them into tiles when it reads them.
constexpr bool IsVectorised(const KvLayout& layout) {
  return layout.unit_tokens() == KvLayout::kUnitTokens && layout.head_dim % 16 == 0;
}

constexpr bool HoldsPairs(KvType type) {
  return type == KvType::kBFloat16 || type == KvType::kInt8;
}

// Locates the dimensions of one token of a unit: d is at start + d / 2 * pair_stride + d % 2 * odd_stride.
struct UnitStrides {
  size_t start;
  size_t pair_stride;
  size_t odd_stride;

  constexpr size_t At(int dim) const { return start + dim / 2 * pair_stride + dim % 2 * odd_stride; }
};

constexpr UnitStrides KeyStrides(const KvLayout& layout, int token) {
  if (!IsVectorised(layout)) return {size_t(token) * layout.head_dim, 2, 1};
  if (HoldsPairs(layout.type)) return {size_t(token) * 2, 32, 1};
  return {size_t(token), 32, 16};
}

// Offsets are relative to the start of the unit, not to its V.
constexpr UnitStrides ValueStrides(const KvLayout& layout, int token) {
  const size_t start = layout.value_start();
  if (IsVectorised(layout) && HoldsPairs(layout.type)) {
    return {start + size_t(token / 2) * 2 * layout.head_dim + token % 2, 4, 2};
  }
  return {start + size_t(token) * layout.head_dim, 2, 1};
}

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_KV_UNIT_H_
