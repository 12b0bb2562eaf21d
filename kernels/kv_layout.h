// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_KV_LAYOUT_H_
#define QUIRE_KERNELS_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace quire {

// The largest head dimension that the backends support.
constexpr int kMaxHeadDim = 256;

// How the numbers of K and V are stored. The first three types match DataType, in the same order.
enum class KvType : uint8_t { kFloat32, kBFloat16, kFloat16, kInt8 };
constexpr int kNumKvTypes = 4;

constexpr KvType KvTypeOf(DataType type) {
  return KvType(type);
}

constexpr size_t SizeOf(KvType type) {
  return type == KvType::kInt8 ? 1 : SizeOf(DataType(type));
}

constexpr const char* Name(KvType type) {
  return type == KvType::kInt8 ? "int8" : Name(DataType(type));
}

// Describes where K and V of a token are stored in the pool. Only this struct knows slot arithmetic: slot = block *
// block_size + offset.
//
// The pool of one layer is [num_blocks][num_kv_heads][unit...]. A unit holds K and then V of up to 16 consecutive
// tokens of one KV head. Blocks are contiguous, so copy-on-write, swap and transfer move whole blocks and never look
// inside. A block of 32, 64, ... tokens consists of consecutive 16-token units. A block of 1, 2, 4 or 8 tokens is one
// unit of that size.
//
// With kInt8, a unit ends with its scales: a float for the K of each of its tokens, and then a float for the V of each.
// Let x be the K or V of one token and KV head, and m the largest magnitude in x. What is stored is
//   q[d] = x[d] * (127 / m), rounded to the nearest whole number (ties to even), in [-127, 127]
//   scale = m / 127
// in float32 arithmetic, and q[d] * scale represents x[d]. If m < 2^-100, everything is 0. If x has an infinity or a
// NaN, all q are 0 and the scale is NaN, so that all of x reads as NaN. These bytes depend on nothing but x, and each
// block holds all the scales that it needs. So it does not matter when, in which step and in which block a token is
// stored, and a copied, swapped or shared block is complete.
struct KvLayout {
  int num_layers;
  int num_kv_heads;
  int head_dim;    // Even, at most kMaxHeadDim.
  int block_size;  // Tokens per block: 1, 2, 4, 8 or a multiple of 16.
  KvType type;

  static constexpr int kUnitTokens = 16;

  constexpr int unit_tokens() const { return block_size < kUnitTokens ? block_size : kUnitTokens; }
  constexpr int units_per_block() const { return block_size / unit_tokens(); }
  // Elements of K and V in one unit of one KV head.
  constexpr size_t unit_elements() const { return size_t{2} * unit_tokens() * head_dim; }
  // Bytes of one unit, with its scales. A multiple of the size of a float where there are scales.
  constexpr size_t unit_bytes() const {
    return unit_elements() * SizeOf(type) + (has_scales() ? 2 * unit_tokens() * sizeof(float) : 0);
  }
  // Elements of one block of one layer: [num_kv_heads][units_per_block][unit_elements].
  constexpr size_t block_elements() const { return size_t{2} * block_size * num_kv_heads * head_dim; }
  // Bytes of one block of one layer: [num_kv_heads][units_per_block][unit_bytes].
  constexpr size_t block_bytes() const { return unit_bytes() * units_per_block() * num_kv_heads; }
  // Bytes of one block of all layers. This is the memory that one block of the pool needs.
  constexpr size_t block_bytes_all_layers() const { return block_bytes() * num_layers; }

  // Returns the first element, in a layer's pool, of the unit that holds token `offset` (0 .. block_size - 1) of a
  // block for one KV head. Example: with blocks of 32 tokens and 2 KV heads, token 20 of block 3 for head 1 is in unit
  // 3 * 4 + 1 * 2 + 1 = 15. The unit's K starts there and its V starts `unit_tokens * head_dim` elements later. The
  // order of elements inside K and V is the backend's choice. Scales count as the elements that have their size.
  constexpr size_t unit_start(uint32_t block, int kv_head, int offset) const {
    return ((size_t{block} * num_kv_heads + kv_head) * units_per_block() + offset / unit_tokens()) *
           (unit_bytes() / SizeOf(type));
  }
  // Distance in elements from the start of a unit to its V.
  constexpr size_t value_start() const { return size_t(unit_tokens()) * head_dim; }

  constexpr bool has_scales() const { return type == KvType::kInt8; }
  // Distances in bytes from the start of a unit to the scales of its first token. REQUIRES: has_scales().
  constexpr size_t key_scales_start() const { return unit_elements(); }
  constexpr size_t value_scales_start() const { return unit_elements() + unit_tokens() * sizeof(float); }
};

}  // namespace quire

#endif  // QUIRE_KERNELS_KV_LAYOUT_H_
