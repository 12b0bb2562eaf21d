// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_COPY_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_COPY_H_

#include "kernels/cuda/attention_tile.h"

namespace quire::cuda {

// Returns the block table of the item's sequence.
QUIRE_DEVICE const uint32_t* BlockTable(const ItemRows& rows) {
  return rows.args.block_tables + simt::LoadReadOnly(rows.args.table_starts + rows.item.sequence);
}

// Returns the address in the pool of unit `unit` of the context, for blocks of full units.
template <typename Unit>
QUIRE_DEVICE const char* FullUnit(const ItemRows& rows, const uint32_t* table, int unit) {
  const AttentionArgs& args = rows.args;
  const uint32_t units_per_block = uint32_t(args.block_size) / kUnitTokens;
  uint32_t index = uint32_t(unit), offset = 0;
  if (units_per_block != 1) {
    offset = index % units_per_block;
    index /= units_per_block;
  }
  const uint32_t block = simt::LoadReadOnly(table + index);
  const uint32_t stored = (block * uint32_t(args.num_kv_heads) + uint32_t(rows.kv_head)) * units_per_block + offset;
  return args.kv_pool + uint64_t{stored} * Unit{kUnitTokens}.bytes();
}

// Copies units of an item's context to shared memory, asynchronously. kThreads consecutive threads, which are whole
// warps, copy a unit together. Each of them has a copier. A unit in shared memory has 16 tokens.
template <UnitSize kSize, typename Unit, int kThreads>
class UnitCopier {
 public:
  // `rows` must outlive the copier.
  explicit QUIRE_DEVICE UnitCopier(const ItemRows& rows) : rows_(rows), table_(BlockTable(rows)) {}

  // Starts to copy unit `unit` of the context (tokens from 16 * unit on). Tokens that no row of the item can see become
  // zeros, whatever their slots contain, because even weight 0 would not suppress a NaN. So a unit behind the item's
  // end becomes all zeros.
  QUIRE_DEVICE void Start(int unit, char* to) const {
    const int num_tokens = rows_.item.end - unit * kUnitTokens;
    if (kSize == UnitSize::kSmall) {
      CopyTokens(unit, num_tokens, to);
    } else if (num_tokens >= kUnitTokens) {
      CopyWholeUnit(FullUnit<Unit>(rows_, table_, unit), to);
    } else {
      CopyBeginOfUnit(num_tokens > 0 ? FullUnit<Unit>(rows_, table_, unit) : rows_.args.kv_pool, num_tokens, to);
    }
  }

 private:
  static constexpr int kMatrixChunks = Unit{kUnitTokens}.matrix_chunks();
  static constexpr int kChunks = Unit{kUnitTokens}.bytes() / Unit::kChunkBytes;
  // Chunks with the scales of K or V, each for kChunkTokens tokens.
  static constexpr int kScaleChunks = Unit{kUnitTokens}.scale_bytes() / Unit::kChunkBytes;
  static constexpr int kChunkTokens = Unit::kChunkBytes / sizeof(float);
  static_assert(kMatrixChunks % kThreads == 0 || kSize == UnitSize::kFull);  // All lanes take part in CopyTokens.
  static_assert(kScaleChunks == 0 || kSize == UnitSize::kFull, "the units of one token of int8 are not aligned");

  // Returns the first chunk of a unit that this thread copies. It is computed for every unit, like other values below,
  // because the kernels of the largest heads have no registers to spare.
  static QUIRE_DEVICE int FirstChunk() { return int(uint32_t(simt::Opaque(simt::ThreadIndex())) % kThreads); }

  static QUIRE_DEVICE void CopyWholeUnit(const char* from, char* to) {
    const int start = FirstChunk() * Unit::kChunkBytes;
    simt::CopyAsync16Times<kChunks / kThreads, kThreads * Unit::kChunkBytes>(to + start, from + start);
    if constexpr (kChunks % kThreads != 0) {
      constexpr int kCopied = kChunks / kThreads * kThreads * Unit::kChunkBytes;
      if (start < kChunks % kThreads * Unit::kChunkBytes) {
        simt::CopyAsync16(to + kCopied + start, from + kCopied + start, true);
      }
    }
  }

  static QUIRE_DEVICE void CopyBeginOfUnit(const char* from, int num_tokens, char* to) {
    QUIRE_NO_UNROLL for (int place = FirstChunk(); place < kMatrixChunks; place += kThreads) {
      const bool exists = Unit{kUnitTokens}.TokenAt(place) < num_tokens;
      const char* const source = from + place * Unit::kChunkBytes;
      simt::CopyAsync16(to + place * Unit::kChunkBytes, source, exists);
      simt::CopyAsync16(to + (kMatrixChunks + place) * Unit::kChunkBytes, source + Unit{kUnitTokens}.matrix_bytes(),
                        exists);
    }
    // The scales of up to three tokens behind the end are copied, too. No row uses them.
    if constexpr (kScaleChunks > 0) {
      const int chunk = FirstChunk(), at = (2 * kMatrixChunks + chunk) * Unit::kChunkBytes;
      if (chunk < 2 * kScaleChunks) {
        simt::CopyAsync16(to + at, from + at, chunk % kScaleChunks * kChunkTokens < num_tokens);
      }
    }
  }

  // Copies tokens that come from small units, each from its own place. A lane looks up the block of one token, and all
  // lanes of the warp get it from there.
  QUIRE_DEVICE void CopyTokens(int unit, int num_tokens, char* to) const {
    const AttentionArgs& args = rows_.args;
    const int block_size = simt::Opaque(args.block_size);
    const Unit stored = {block_size};
    const int lane_token = simt::LaneIndex() % kUnitTokens;
    uint32_t lane_block = 0;
    if (lane_token < num_tokens) {
      lane_block = simt::LoadReadOnly(table_ + UnitIndex<kSize>(unit * kUnitTokens + lane_token, block_size));
    }
    QUIRE_NO_UNROLL for (int place = FirstChunk(); place < kMatrixChunks; place += kThreads) {
      const int token = Unit{kUnitTokens}.TokenAt(place);
      const bool exists = token < num_tokens;
      const uint32_t block = simt::Shuffle(lane_block, token);
      const uint32_t stored_unit = block * uint32_t(args.num_kv_heads) + uint32_t(rows_.kv_head);
      const char* const source =
          args.kv_pool + uint64_t{stored_unit} * uint32_t(stored.bytes()) +
          stored.Place(token & (block_size - 1), Unit{kUnitTokens}.ChunkAt(place)) * Unit::kChunkBytes;
      simt::CopyAsync16(to + place * Unit::kChunkBytes, source, exists);
      simt::CopyAsync16(to + (kMatrixChunks + place) * Unit::kChunkBytes, source + stored.matrix_bytes(), exists);
    }
  }

  const ItemRows& rows_;
  const uint32_t* const table_;  // The block table of the item's sequence.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_COPY_H_
