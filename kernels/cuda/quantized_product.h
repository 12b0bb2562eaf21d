// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCT_H_
#define QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCT_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/packed_weights.h"

namespace quire::cuda {

// Products of a few rows of x by quantized weights, which are read once. The columns are divided into splits of whole
// blocks of 64, and
//   partial[split][m][n] = sum over the groups j in the split, ascending, of scale[n][j] * S(j),
//   S(j) = sum over the columns k of group j in the split of x[m][k] * (value[n][k] - zero[n][j]),
// where S(j) is a sum of exact products in float32, 16 columns at a time in ascending order, and the sum over groups
// uses fused multiply-add in float32. Weights are not rounded. SplitSumKernel adds the splits in ascending order. So
// the bits of an element of the result depend on its row of x, the matrix and the splits alone.
struct QuantizedProductArgs {
  const uint16_t* x;  // [num_tokens, w.cols], aligned to 16 bytes.
  PackedWeights w;
  float* partial;  // [num_splits][split_stride], in each [num_tokens, w.rows].
  int64_t split_stride;
  int32_t num_tokens;        // At least 1, at most the tokens of the kernel.
  int32_t num_row_blocks;    // Blocks of kRows rows; the grid has this number of thread blocks for each split.
  int32_t blocks_per_split;  // Of 64 columns.
};

// A thread block multiplies kRows rows of weights and the columns of a split by all rows of x, 64 columns at a time.
// Each warp has a tile of 16 rows, of which it copies the values itself; all warps share the copies of x. Copies are
// three blocks ahead.
template <typename Element, typename Values, int kTokenTiles>
class QuantizedProductKernel {
 public:
  using Args = QuantizedProductArgs;
  // The sums of 64 tokens take so many registers that eight warps would not be two blocks on a multiprocessor.
  static constexpr int kWarps = kTokenTiles < 8 ? 8 : 4;
  static constexpr int kThreads = kWarps * simt::kWarpSize;
  static constexpr int kRows = kWarps * kWeightTileRows;
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kStages = 4;
  static constexpr int kXBytes = kTokens * kBlockColumns * int(sizeof(uint16_t));
  static constexpr int kValueBytes = Values::kPieces * kPieceBytes;  // Of a warp.
  static constexpr int kStageBytes = kXBytes + kWarps * kValueBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;

  static QUIRE_DEVICE void Run(const QuantizedProductArgs& args) {
    simt::WaitForPriorGrid();
    QuantizedProductKernel kernel(args);
    kernel.MultiplySplit();
    kernel.StoreSums();
    simt::TriggerNextGrid();
  }

 private:
  static constexpr int kRowBytes = kBlockColumns * int(sizeof(uint16_t));  // Of x in a stage.
  static constexpr int kChunks = kRowBytes / 16;                           // Of such a row.

  explicit QUIRE_DEVICE QuantizedProductKernel(const QuantizedProductArgs& args)
      : args_(args),
        tile_(simt::BlockIndex() % args.num_row_blocks * kWarps + simt::WarpIndex()),
        split_(simt::BlockIndex() / args.num_row_blocks),
        has_tile_(tile_ * kWeightTileRows < args.w.rows) {}

  // Chunks of x are exchanged within odd rows, so that the lanes that load at a time use different banks.
  static QUIRE_DEVICE int ChunkPlace(int token, int chunk) { return chunk ^ (token % 2 * (kChunks / 2)); }

  QUIRE_DEVICE void CopyBlock(int block, char* stage) const {
    QUIRE_UNROLL for (int first = 0; first < kTokens * kChunks; first += kThreads) {
      const int i = first + simt::ThreadIndex(), token = i / kChunks, chunk = i % kChunks;
      if (kTokens * kChunks % kThreads != 0 && i >= kTokens * kChunks) break;
      const int k = kBlockColumns * block + 8 * chunk;
      simt::CopyAsync16(stage + token * kRowBytes + 16 * ChunkPlace(token, chunk),
                        args_.x + int64_t{token} * args_.w.cols + k, token < args_.num_tokens && k < args_.w.cols);
    }
    char* const values = stage + kXBytes + simt::WarpIndex() * kValueBytes + 16 * simt::LaneIndex();
    const char* const from =
        args_.w.values + (int64_t{tile_} * args_.w.num_blocks + block) * kValueBytes + 16 * simt::LaneIndex();
    if (has_tile_) simt::CopyAsync16Times<Values::kPieces, kPieceBytes>(values, from);
  }

  QUIRE_DEVICE void MultiplySplit() {
    QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) totals_[i][j] = sums_[i][j] = 0;
    }
    const int first = split_ * args_.blocks_per_split;
    const int last = first + args_.blocks_per_split, end = last < args_.w.num_blocks ? last : args_.w.num_blocks;
    const auto copy = [&](int block, int stage) {
      if (block < end) CopyBlock(block, simt::SharedMemory() + stage * kStageBytes);
      simt::CommitCopies();
    };
    QUIRE_NO_UNROLL for (int s = 0; s < kStages - 1; ++s) copy(first + s, s);
    if (has_tile_) BeginGroups(2 * first);
    int stage = 0;
    QUIRE_NO_UNROLL for (int block = first; block < end; ++block) {
      simt::WaitCopies<kStages - 2>();
      simt::SyncBlock();  // Everybody's copies of this block have landed, and the buffer of the block before is free.
      copy(block + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      if (has_tile_) MultiplyBlock(simt::SharedMemory() + stage * kStageBytes);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    simt::WaitCopies<0>();
    AddGroup();
  }

  // Finds the group of half block `half`, and loads its scales and those of the next group.
  QUIRE_DEVICE void BeginGroups(int half) {
    group_ = half / args_.w.group_halves;
    halves_left_ = (group_ + 1) * args_.w.group_halves - half;
    scales_ = LaneScales::Load<Values>(args_.w, tile_, group_);
    LoadNextScales();
  }
  QUIRE_DEVICE void LoadNextScales() {
    const int last = args_.w.num_groups - 1, next = group_ < last ? group_ + 1 : last;
    next_scales_ = LaneScales::Load<Values>(args_.w, tile_, next);
  }

  // Adds the sums of a group, or of its part in this split, to the totals.
  QUIRE_DEVICE void AddGroup() {
    QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
        totals_[i][j] = fmaf(scales_.scale[j / 2], sums_[i][j], totals_[i][j]);
        sums_[i][j] = 0;
      }
    }
  }

  QUIRE_DEVICE void MultiplyBlock(const char* stage) {
    const int lane = simt::LaneIndex(), g = lane / 4;
    const char* const values = stage + kXBytes + simt::WarpIndex() * kValueBytes + 16 * lane;
    simt::U32x4 pieces[Values::kPieces];
    QUIRE_UNROLL for (int i = 0; i < Values::kPieces; ++i) {
      pieces[i] = simt::LoadShared(reinterpret_cast<const simt::U32x4*>(values + i * kPieceBytes));
    }
    QUIRE_UNROLL for (int half = 0; half < 2; ++half) {
      const WeightFragments w = Values::template Convert<Element>(pieces, half, scales_.zeros);
      const char* const x = stage + g * kRowBytes + 16 * ChunkPlace(g, kChunks / 2 * half + lane % 4);
      QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
        const auto* const chunk = reinterpret_cast<const simt::U32x4*>(x + i * 8 * kRowBytes);
        const simt::U32x4 columns = simt::LoadShared(chunk);  // Eight columns of token 8 i + g.
        Element::Mma(sums_[i], w.step[0], columns.word[0], columns.word[1]);
        Element::Mma(sums_[i], w.step[1], columns.word[2], columns.word[3]);
      }
      if (--halves_left_ == 0) {
        AddGroup();
        halves_left_ = args_.w.group_halves;
        ++group_;
        scales_ = next_scales_;
        LoadNextScales();
      }
    }
  }

  QUIRE_DEVICE void StoreSums() const {
    if (!has_tile_) return;
    const int lane = simt::LaneIndex();
    float* const partial = args_.partial + split_ * args_.split_stride;
    QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
        const int token = 8 * i + 2 * (lane % 4) + j % 2, row = kWeightTileRows * tile_ + lane / 4 + 8 * (j / 2);
        if (token < args_.num_tokens && row < args_.w.rows) {
          simt::StoreGlobal(partial + int64_t{token} * args_.w.rows + row, totals_[i][j]);
        }
      }
    }
  }

  const QuantizedProductArgs& args_;
  const int tile_, split_;
  const bool has_tile_;
  int group_ = 0, halves_left_ = 0;
  LaneScales scales_ = {}, next_scales_ = {};
  float sums_[kTokenTiles][4];    // Of the current group: rows g and g + 8, tokens 8 i + 2 t and 8 i + 2 t + 1.
  float totals_[kTokenTiles][4];  // Of the groups before, multiplied by their scales.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCT_H_
