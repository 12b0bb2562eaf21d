// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_REPACK_BLOCKS_H_
#define QUIRE_KERNELS_CUDA_REPACK_BLOCKS_H_

#include <cstdint>

#include "kernels/cuda/kv_unit.h"
#include "kernels/paged_attention.h"
#include "kernels/simt/simt.h"

namespace quire::cuda {

// Copies blocks of a cache, in the order of paged_attention.h, into a layer's pool. Block i of the pool is the used
// part of used_blocks[i]. Elements have 16 bits.
struct RepackBlocksArgs {
  const uint16_t* key_cache;
  int64_t key_strides[3];  // Elements from one block, token and head to the next.
  const uint16_t* value_cache;
  int64_t value_strides[3];
  const PagedAttentionStep::UsedBlock* used_blocks;  // [num_blocks]
  char* kv_pool;
  int32_t num_blocks;
  int32_t block_size;
  int32_t num_kv_heads;
  int32_t head_dim;       // IsRepackedHeadDim(head_dim) is true.
  bool has_aligned_rows;  // Every row of the caches begins at a multiple of 16 bytes.
};

// The emulated device alone has attention kernels for heads of 16.
constexpr bool IsRepackedHeadDim(int64_t head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 ||
         head_dim == 256;
}

// A warp handles one token of a KV head of a block at a time, and a lane handles chunks of 8 elements.
class RepackBlocksKernel {
 public:
  using Args = RepackBlocksArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const RepackBlocksArgs& args) {
    simt::WaitForPriorGrid();
    switch (args.head_dim) {
      case 16:
        return RepackBlocks<16>(args);
      case 32:
        return RepackBlocks<32>(args);
      case 64:
        return RepackBlocks<64>(args);
      case 80:
        return RepackBlocks<80>(args);
      case 96:
        return RepackBlocks<96>(args);
      case 128:
        return RepackBlocks<128>(args);
      case 256:
        return RepackBlocks<256>(args);
      default:
        return;
    }
  }

 private:
  static constexpr int kWarps = kThreads / simt::kWarpSize;

  template <int kHeadDim>
  static QUIRE_DEVICE void RepackBlocks(const RepackBlocksArgs& args) {
    const int64_t rows_per_block = int64_t{args.num_kv_heads} * args.block_size;
    for (int64_t row = int64_t{simt::BlockIndex()} * kWarps + simt::WarpIndex(); row < args.num_blocks * rows_per_block;
         row += int64_t{simt::GridSize()} * kWarps) {
      const int in_block = int(row % rows_per_block);
      RepackToken<kHeadDim>(args, row / rows_per_block, in_block / args.block_size, in_block % args.block_size);
    }
  }

  template <int kHeadDim>
  static QUIRE_DEVICE void RepackToken(const RepackBlocksArgs& args, int64_t block, int head, int token) {
    if (token >= simt::LoadReadOnly(&args.used_blocks[block].num_tokens)) return;
    const int64_t from = simt::LoadReadOnly(&args.used_blocks[block].block);
    const uint16_t* const key = Row(args.key_cache, args.key_strides, from, token, head);
    const uint16_t* const value = Row(args.value_cache, args.value_strides, from, token, head);
    const KvUnit<kHeadDim> unit = {args.block_size < KvLayout::kUnitTokens ? args.block_size : KvLayout::kUnitTokens};
    const int64_t index =
        (block * args.num_kv_heads + head) * (args.block_size / unit.num_tokens) + token / unit.num_tokens;
    char* const to = args.kv_pool + index * unit.bytes();
    for (int chunk = simt::LaneIndex(); chunk < 2 * unit.kRowChunks; chunk += simt::kWarpSize) {
      const bool is_value = chunk >= unit.kRowChunks;
      const int in_row = is_value ? chunk - unit.kRowChunks : chunk;
      const int place = (is_value ? unit.matrix_chunks() : 0) + unit.Place(token % unit.num_tokens, in_row);
      const simt::U32x4 words = LoadChunk((is_value ? value : key) + 8 * in_row, args.has_aligned_rows);
      simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(to + place * unit.kChunkBytes), words);
    }
  }

  static QUIRE_DEVICE const uint16_t* Row(const uint16_t* cache, const int64_t (&strides)[3], int64_t block, int token,
                                          int head) {
    return cache + block * strides[0] + token * strides[1] + head * strides[2];
  }

  static QUIRE_DEVICE simt::U32x4 LoadChunk(const uint16_t* from, bool is_aligned) {
    if (is_aligned) return simt::LoadReadOnly(reinterpret_cast<const simt::U32x4*>(from));
    simt::U32x4 words;
    QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
      words.word[i] = simt::LoadReadOnly(from + 2 * i) | uint32_t{simt::LoadReadOnly(from + 2 * i + 1)} << 16;
    }
    return words;
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_REPACK_BLOCKS_H_
