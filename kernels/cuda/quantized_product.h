// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCT_H_
#define QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCT_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/packed_weights.h"
#include "kernels/cuda/split_sum.h"

namespace quire::cuda {

// Products of a few rows of x by quantized weights, which are read once. The columns are divided into splits of whole
// blocks of 128, and
//   partial[split][m][n] = sum over the groups j in the split, ascending, of scale[n][j] * S(j),
//   S(j) = sum over the columns k of group j in the split of x[m][k] * (value[n][k] - zero[n][j]),
// where S(j) is a sum of exact products in float32, 16 columns at a time in ascending order, and the sum over groups
// uses fused multiply-add in float32. Weights are not rounded. The splits are added in ascending order, and
// y[m][n] = that sum (+ y[m][n]). So the bits of an element of the result depend on its row of x, the matrix and the
// splits alone.
//
// If there is only one split, or if the kernel takes at most 16 tokens (kJoinsSplits), it also writes y. A sum of more
// splits is left to the thread block that is the last one to finish its rows. Otherwise SplitSumKernel adds the splits,
// with more multiprocessors.
constexpr int kRowsOfProductBlock = 128;

struct QuantizedProductArgs {
  const uint16_t* x;  // [num_tokens, w.cols], aligned to 16 bytes.
  PackedWeights w;
  void* y;         // [num_tokens, w.rows] float32 or elements.
  float* partial;  // [num_splits][split_stride], in each [num_tokens, partial_rows]. One split does not use it.
  int64_t split_stride;
  int32_t partial_rows;    // At least w.rows. A multiple of kRowsOfProductBlock if the kernel adds the splits.
  int32_t num_tokens;      // At least 1.
  int32_t num_row_blocks;  // Blocks of kRowsOfProductBlock rows.
  int32_t num_splits;
  int32_t blocks_per_split;  // Blocks of 128 columns.
  uint32_t* tickets;         // [num_row_blocks], if the kernel adds the splits: zeros, and zeros again when it ends.
  bool y_is_float;
  bool adds_to_y;
};

// A thread block multiplies kRows rows of weights and the columns of a split by kTokens rows of x, 128 columns at a
// time. The grid has a thread block for each block of rows, split and block of tokens. Each warp has kRowTiles tiles of
// 16 rows, of which it copies the values itself; all warps share the copies of x. Copies are kStages - 1 blocks ahead.
template <typename Element, typename Values, int kTokenTiles>
class QuantizedProductKernel {
 public:
  using Args = QuantizedProductArgs;
  // With many tokens, what a warp reads of x is used for two tiles, because shared memory would limit the speed.
  static constexpr int kRowTiles = kTokenTiles < 4 ? 1 : 2;
  static constexpr int kRows = kRowsOfProductBlock;
  static constexpr int kWarps = kRows / (kRowTiles * kWeightTileRows);
  static constexpr int kThreads = kWarps * simt::kWarpSize;
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr bool kJoinsSplits = kTokenTiles <= 2;
  static constexpr int kStages = kTokenTiles < 4 ? 4 : 3;
  static constexpr int kXBytes = kTokens * kBlockColumns * int(sizeof(uint16_t));
  static constexpr int kValueBytes = Values::kPieces * kPieceBytes;  // Bytes of a tile.
  // The scales of the groups of a block and tile, one entry for each quarter. FP8 has groups that end within blocks,
  // but hardly anybody uses them; they are read from global memory.
  static constexpr int kScaleEntries = Values::kHasZeros ? kBlockQuarters : 1;
  static constexpr int kScaleBytes = LaneScales::kPieces<Values> * 16;
  static constexpr int kStageBytes = kXBytes + kWarps * kRowTiles * (kValueBytes + kScaleEntries * kScaleBytes);
  static constexpr int kSharedBytes = kStages * kStageBytes;

  static QUIRE_DEVICE void Run(const QuantizedProductArgs& args) {
    simt::WaitForPriorGrid();
    QuantizedProductKernel kernel(args);
    if (args.w.group_quarters % kBlockQuarters == 0) {
      kernel.template MultiplySplit<false>();
    } else {
      kernel.template MultiplySplit<true>();
    }
    if (args.num_splits == 1) {
      kernel.StoreResult();
    } else {
      kernel.StorePartial();
      if constexpr (kJoinsSplits) kernel.JoinSplits();
    }
    simt::TriggerNextGrid();
  }

 private:
  static constexpr int kRowBytes = kBlockColumns * int(sizeof(uint16_t));  // Bytes of a row of x in a stage.
  static constexpr int kChunks = kRowBytes / 16;                           // Chunks of such a row.

  explicit QUIRE_DEVICE QuantizedProductKernel(const QuantizedProductArgs& args)
      : args_(args),
        row_block_(simt::BlockIndex() % args.num_row_blocks),
        split_(simt::BlockIndex() / args.num_row_blocks % args.num_splits),
        first_token_(simt::BlockIndex() / args.num_row_blocks / args.num_splits * kTokens),
        num_tokens_(args.num_tokens - first_token_),
        tile_((row_block_ * kWarps + simt::WarpIndex()) * kRowTiles),
        last_tile_((args.w.rows - 1) / kWeightTileRows) {}

  // Missing tiles multiply the last one again, so that all warps have the same way.
  QUIRE_DEVICE int ReadTile(int r) const { return tile_ + r < last_tile_ ? tile_ + r : last_tile_; }

  // Chunks of x are exchanged within odd rows, so that the lanes that load at a time use different banks.
  static QUIRE_DEVICE int ChunkPlace(int token, int chunk) { return chunk ^ (token % 2 * 4); }

  template <bool kGroupsEndInside>
  QUIRE_DEVICE void CopyBlock(int block, char* stage) const {
    constexpr int kStep = kThreads / kChunks;  // Tokens that all threads copy at a time.
    const int first = simt::ThreadIndex() / kChunks, chunk = simt::ThreadIndex() % kChunks;
    const int k = kBlockColumns * block + 8 * chunk, num_tokens = k < args_.w.cols ? num_tokens_ : 0;
    char* const to = stage + first * kRowBytes + 16 * ChunkPlace(first, chunk);
    const uint16_t* from_x = args_.x + int64_t{first_token_ + first} * args_.w.cols + k;
    if (kStep <= kTokens || first < kTokens) {
      QUIRE_UNROLL for (int i = 0; i < kTokens; i += kStep) {
        simt::CopyAsync16(to + i * kRowBytes, from_x, first + i < num_tokens);
        from_x += kStep * args_.w.cols;
      }
    }
    QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
      const char* const from =
          args_.w.values + (int64_t{ReadTile(r)} * args_.w.num_blocks + block) * kValueBytes + 16 * simt::LaneIndex();
      simt::CopyAsync16Times<Values::kPieces, kPieceBytes>(stage + MyValues(r), from);
      CopyScales<kGroupsEndInside>(block, r, stage + MyScales(r));
    }
  }

  template <bool kGroupsEndInside>
  QUIRE_DEVICE void CopyScales(int block, int r, char* to) const {
    constexpr int kPieces = LaneScales::kPieces<Values>, kEntries = kGroupsEndInside ? kScaleEntries : 1;
    const int lane = simt::LaneIndex(), entry = lane / kPieces;
    if (lane >= kEntries * kPieces) return;
    const int group = kGroupsEndInside ? (kBlockQuarters * block + entry) / args_.w.group_quarters : copied_group_;
    LaneScales::CopyPiece(args_.w, ReadTile(r), group, lane % kPieces, to + entry * kScaleBytes);
  }

  // The places of what my lane multiplies and of the scales of my warp, in a stage.
  static QUIRE_DEVICE int MyValues(int r) {
    return kXBytes + (simt::WarpIndex() * kRowTiles + r) * kValueBytes + 16 * simt::LaneIndex();
  }

  static QUIRE_DEVICE int MyScales(int r) {
    constexpr int kFirst = kXBytes + kWarps * kRowTiles * kValueBytes;
    return kFirst + (simt::WarpIndex() * kRowTiles + r) * kScaleEntries * kScaleBytes;
  }

  // Groups of columns may end inside of a block or only between blocks.
  template <bool kGroupsEndInside>
  QUIRE_DEVICE void MultiplySplit() {
    QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
      QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
        QUIRE_UNROLL for (int j = 0; j < 4; ++j) totals_[r][i][j] = sums_[r][i][j] = 0;
      }
    }
    const int first = split_ * args_.blocks_per_split;
    const int last = first + args_.blocks_per_split, end = last < args_.w.num_blocks ? last : args_.w.num_blocks;
    BeginGroups(first);
    const auto copy = [&](int block, int stage) {
      if (block < end) CopyBlock<kGroupsEndInside>(block, simt::SharedMemory() + stage * kStageBytes);
      simt::CommitCopies();
      CountCopiedBlock();
    };
    QUIRE_NO_UNROLL for (int s = 0; s < kStages - 1; ++s) copy(first + s, s);
    int stage = 0;
    QUIRE_NO_UNROLL for (int block = first; block < end; ++block) {
      simt::WaitCopies<kStages - 2>();
      simt::SyncBlock();  // Everybody's copies of this block have landed, and the buffer of the block before is free.
      copy(block + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      MultiplyBlock<kGroupsEndInside>(block, block + 1 == end, simt::SharedMemory() + stage * kStageBytes);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    simt::WaitCopies<0>();
  }

  // Finds the group of a block, where multiplication and copies begin.
  QUIRE_DEVICE void BeginGroups(int block) {
    const int quarter = kBlockQuarters * block;
    copied_group_ = quarter / args_.w.group_quarters;
    copied_quarters_left_ = quarters_left_ = (copied_group_ + 1) * args_.w.group_quarters - quarter;
  }
  // The result is used only for groups that end between blocks.
  QUIRE_DEVICE void CountCopiedBlock() {
    copied_quarters_left_ -= kBlockQuarters;
    if (copied_quarters_left_ != 0) return;
    ++copied_group_;
    copied_quarters_left_ = args_.w.group_quarters;
  }

  // Adds the sums of a group, or of its part in this split, to the totals.
  QUIRE_DEVICE void AddGroup(const LaneScales (&scales)[kRowTiles]) {
    QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
      QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
        QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
          totals_[r][i][j] = fmaf(scales[r].scale[j / 2], sums_[r][i][j], totals_[r][i][j]);
          sums_[r][i][j] = 0;
        }
      }
    }
  }

  // Counts quarters that were multiplied, and ends their group if they were the last ones of the group or the split.
  QUIRE_DEVICE void CountQuarters(int count, bool is_last, const LaneScales (&scales)[kRowTiles]) {
    quarters_left_ -= count;
    if (quarters_left_ != 0 && !is_last) return;
    AddGroup(scales);
    quarters_left_ = args_.w.group_quarters;
  }

  template <bool kGroupsEndInside>
  QUIRE_DEVICE void MultiplyBlock(int block, bool is_last, const char* stage) {
    const int lane = simt::LaneIndex(), g = lane / 4;
    simt::U32x4 pieces[kRowTiles][Values::kPieces];
    LaneScales scales[kRowTiles];
    QUIRE_UNROLL for (int quarter = 0; quarter < kBlockQuarters; ++quarter) {
      WeightFragments w[kRowTiles];
      QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
        constexpr int kQuartersOfPiece = kBlockQuarters / Values::kPieces;
        const int piece = quarter / kQuartersOfPiece;
        if (quarter % kQuartersOfPiece == 0) {
          const char* const from = stage + MyValues(r) + piece * kPieceBytes;
          pieces[r][piece] = simt::LoadShared(reinterpret_cast<const simt::U32x4*>(from));
        }
        if (kGroupsEndInside && kScaleEntries == 1) {
          const int group = (kBlockQuarters * block + quarter) / args_.w.group_quarters;
          scales[r] = LaneScales::Load<Values>(args_.w, ReadTile(r), group);
        } else if (kGroupsEndInside || quarter == 0) {
          scales[r] = LaneScales::LoadEntry<Values>(stage + MyScales(r) + quarter * kScaleBytes);
        }
        w[r] = Values::template Convert<Element>(pieces[r], quarter, scales[r].zeros);
      }
      const char* const x = stage + g * kRowBytes + 16 * ChunkPlace(g, 4 * quarter + lane % 4);
      QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
        const auto* const chunk = reinterpret_cast<const simt::U32x4*>(x + i * 8 * kRowBytes);
        const simt::U32x4 columns = simt::LoadShared(chunk);  // Eight columns of token 8 i + g.
        QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
          Element::Mma(sums_[r][i], w[r].step[0], columns.word[0], columns.word[1]);
          Element::Mma(sums_[r][i], w[r].step[1], columns.word[2], columns.word[3]);
        }
      }
      if (kGroupsEndInside) CountQuarters(1, is_last && quarter + 1 == kBlockQuarters, scales);
    }
    if (!kGroupsEndInside) CountQuarters(kBlockQuarters, is_last, scales);
  }

  // Calls f(token, row, total) for the totals of my lane that are elements of a matrix of num_rows rows.
  template <typename F>
  QUIRE_DEVICE void ForEachTotal(int num_rows, F f) const {
    ForEachSumOfLane(totals_, tile_, last_tile_, num_tokens_, num_rows,
                     [&](int token, int row, float total) { f(first_token_ + token, row, total); });
  }

  QUIRE_DEVICE void StoreToY(int token, int row, float sum) const {
    StoreProduct<Element>(args_.y, args_.y_is_float, args_.adds_to_y, int64_t{token} * args_.w.rows + row, sum);
  }

  QUIRE_DEVICE void StoreResult() const {
    ForEachTotal(args_.w.rows, [&](int token, int row, float total) { StoreToY(token, row, total); });
  }

  QUIRE_DEVICE StoredSums<float> Partial() const {
    return {args_.partial, args_.split_stride, args_.partial_rows, args_.num_splits};
  }

  QUIRE_DEVICE void StorePartial() const {
    float* const partial = Partial().OfSplit(split_);
    ForEachTotal(args_.partial_rows, [&](int token, int row, float sum) {
      simt::StoreGlobal(partial + int64_t{token} * args_.partial_rows + row, sum);
    });
  }

  // The last thread block that has stored its partial sums of these rows adds all splits.
  QUIRE_DEVICE void JoinSplits() const {
    if (!IsLastSplit(args_.tickets + row_block_, args_.num_splits)) return;
    Partial().template Join<kRows, kThreads>(
        row_block_ * kRows, args_.w.rows, args_.num_tokens, [](float a, float b) { return a + b; },
        [&](int token, int row, float sum) { StoreToY(token, row, sum); });
  }

  const QuantizedProductArgs& args_;
  const int row_block_, split_, first_token_, num_tokens_, tile_, last_tile_;
  int quarters_left_ = 0;                            // Quarters left in the current group.
  int copied_group_ = 0, copied_quarters_left_ = 0;  // Of the block that is copied next.
  // The sums of the current group, of rows g and g + 8 of a tile and tokens 8 i + 2 t and 8 i + 2 t + 1.
  float sums_[kRowTiles][kTokenTiles][4];
  float totals_[kRowTiles][kTokenTiles][4];  // The sums of the groups before, times their scales.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCT_H_
