// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_KV_REPACK_H_
#define QUIRE_KERNELS_CPU_KV_REPACK_H_

#include <cstdint>

#include "kernels/cpu/kv_unit.h"

namespace quire::cpu {

// K and V of a block in rows. Strides are in elements, from one token and from one KV head to the next. The dimensions
// of a row are contiguous.
template <typename T>
struct BlockRows {
  const T* key;  // [block_size, num_kv_heads, head_dim]
  int64_t key_strides[2];
  const T* value;  // [block_size, num_kv_heads, head_dim]
  int64_t value_strides[2];
};

// Copies the first `num_tokens` tokens into block `block` of a layer's pool, bit for bit. T must have the size of the
// pool's elements.
template <typename T>
void RepackBlock(const BlockRows<T>& rows, int num_tokens, const KvLayout& layout, uint32_t block, T* kv_pool) {
  for (int head = 0; head < layout.num_kv_heads; ++head) {
    for (int token = 0; token < num_tokens; ++token) {
      T* const unit = kv_pool + layout.unit_start(block, head, token);
      const int in_unit = token % layout.unit_tokens();
      const UnitStrides key = KeyStrides(layout, in_unit), value = ValueStrides(layout, in_unit);
      const T* const k = rows.key + token * rows.key_strides[0] + head * rows.key_strides[1];
      const T* const v = rows.value + token * rows.value_strides[0] + head * rows.value_strides[1];
      for (int d = 0; d < layout.head_dim; ++d) {
        unit[key.At(d)] = k[d];
        unit[value.At(d)] = v[d];
      }
    }
  }
}

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_KV_REPACK_H_
