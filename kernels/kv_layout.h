#ifndef QUIRE_KERNELS_KV_LAYOUT_H_
#define QUIRE_KERNELS_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace quire {

// Where K and V of a token live in the pool. The one place that knows slot arithmetic: slot = block * block_size +
// offset.
//
// The pool of one layer is [num_blocks][num_kv_heads][unit...]; a unit holds K and then V of up to 16 consecutive
// tokens of one KV head, contiguous, so that copy-on-write, swap and transfer move whole blocks and never look inside.
// A block of 32, 64, ... tokens is that many 16-token units in a row; blocks of 1, 2, 4 and 8 tokens have units of that
// size.
struct KvLayout {
  int num_layers;
  int num_kv_heads;
  int head_dim;
  int block_size;  // Tokens per block: 1, 2, 4, 8 or a multiple of 16.
  DataType type;

  static constexpr int kUnitTokens = 16;

  constexpr int unit_tokens() const { return block_size < kUnitTokens ? block_size : kUnitTokens; }
  constexpr int units_per_block() const { return block_size / unit_tokens(); }
  // K and V of one (unit, KV head).
  constexpr size_t unit_elements() const { return size_t{2} * unit_tokens() * head_dim; }
  // One block of one layer: [num_kv_heads][units_per_block][unit_elements].
  constexpr size_t block_elements() const { return size_t{2} * block_size * num_kv_heads * head_dim; }
  // One block of one layer, in bytes.
  constexpr size_t block_bytes() const { return block_elements() * SizeOf(type); }
  // One block of all layers, in bytes: what a block of the pool costs.
  constexpr size_t block_bytes_all_layers() const { return block_bytes() * num_layers; }
};

}  // namespace quire

#endif  // QUIRE_KERNELS_KV_LAYOUT_H_
