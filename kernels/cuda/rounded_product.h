// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ROUNDED_PRODUCT_H_
#define QUIRE_KERNELS_CUDA_ROUNDED_PRODUCT_H_

#include <cstdint>
#include <cstring>

#include "kernels/cuda/byte_numbers.h"
#include "kernels/cuda/split_sum.h"

namespace quire::cuda {

// Products of rounded rows (round_rows.h) by weights of int8 or FP8, which are read once for a few tokens:
//   y[m][n] = float(sum over k of x[m][k] * w[n][k]) * (x_scales[m] * w_scales[n]) (+ y[m][n]).
// In int8 the sum is a whole number below 2^31, so the order of the additions changes no bit of the result. In FP8 the
// tensor cores add the products of 128 columns, and these sums are added in float32 in ascending order. The columns k
// are divided into splits of whole blocks of 128, so that all multiprocessors have work.
//
// Weights of FP8 in blocks of 128 x 128 have a scale for each, and a token one for each 128 columns:
//   y[m][n] = sum over the blocks b of columns, ascending, of
//             (sum over k of block b of x[m][k] * w[n][k]) * (x_scales[b][m] * w_scales[n / 128][b]) (+ y[m][n]).
// The sums over b are in float32.
//
// If there is only one split, or if the kernel takes at most 16 tokens (kJoinsSplits), it also writes y. A sum of more
// splits is left to the thread block that is the last one to finish its rows. Otherwise ScaleSumsKernel adds the
// splits.
constexpr int kByteBlockColumns = 128;
constexpr int kByteBlockRows = 128;
constexpr int kByteTileRows = 16;

struct RoundedProductArgs {
  const int8_t* x;        // [num_tokens, depth] numbers of 8 bits, aligned to 16 bytes.
  const float* x_scales;  // [num_tokens], or with scales of blocks [depth / 128][x_scale_stride], aligned to 16 bytes.
  const int8_t* w;        // [padded_rows, depth], aligned to 16 bytes.
  const float* w_scales;  // [padded_rows], or [num_row_blocks][w_scale_stride], aligned to 16 bytes.
  void* y;                // [num_tokens, rows] float32 or elements; a row begins y_stride after the one before.
  int64_t y_stride;
  void* partial;  // [num_splits][split_stride] sums, in each [num_tokens, padded_rows]. One split does not use it.
  int64_t split_stride;
  int32_t rows;
  int32_t padded_rows;     // `rows`, rounded up to whole tiles of 16.
  int32_t depth;           // A multiple of 128; x and w have zeros in columns that the matrix does not have.
  int32_t num_tokens;      // At least 1.
  int32_t num_row_blocks;  // Blocks of kByteBlockRows rows.
  int32_t num_splits;
  int32_t blocks_per_split;  // Blocks of 128 columns.
  uint32_t* tickets;         // [num_row_blocks], if the kernel adds the splits: zeros, and zeros again when it ends.
  bool y_is_float;
  bool adds_to_y;
  // With scales of blocks, these are multiples of 4, at least num_tokens and depth / 128.
  int32_t x_scale_stride = 0;
  int32_t w_scale_stride = 0;
};

// A thread block multiplies kRows rows of weights and the columns of a split by kTokens rows of x, 128 columns at a
// time. The grid has a thread block for each block of rows, split and block of tokens. Each warp has kRowTiles tiles of
// 16 rows, which it copies itself; all warps share the copies of x. Copies are kStages - 1 blocks ahead.
//
// In shared memory a row has 128 bytes, eight chunks of 16. Chunk c of row r is in place c ^ (r % 8), so that the eight
// rows which ldmatrix reads at a time use different banks.
template <typename Element, typename Numbers, int kTokenTiles>
class RoundedProductKernel {
 public:
  using Args = RoundedProductArgs;
  // With many tokens, what a warp reads of x is used for two tiles, because shared memory would limit the speed. Warp
  // groups read less.
  static constexpr int kRowTiles = Numbers::kHasWarpGroups || kTokenTiles < 4 ? 1 : 2;
  static constexpr int kRows = kByteBlockRows;
  static constexpr int kWarps = kRows / (kRowTiles * kByteTileRows);
  static constexpr int kThreads = kWarps * simt::kWarpSize;
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr bool kJoinsSplits = kTokenTiles <= 2;
  static constexpr int kStages = kTokenTiles < 4 ? 4 : 3;
  static constexpr int kRowBytes = kByteBlockColumns;
  static constexpr int kTileBytes = kByteTileRows * kRowBytes;
  static constexpr int kXBytes = kTokens * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kWarps * kRowTiles * kTileBytes;
  // The scales of a block of columns: for the tokens, and for four blocks of weights, among them the block.
  static constexpr int kScaleBytes = Numbers::kHasBlockScales ? (kTokens + kScaleMultiple) * int(sizeof(float)) : 0;
  static constexpr int kSharedBytes = kStages * (kStageBytes + kScaleBytes);

  static QUIRE_DEVICE void Run(const RoundedProductArgs& args) {
    simt::WaitForPriorGrid();
    RoundedProductKernel kernel(args);
    kernel.MultiplySplit();
    if (args.num_splits == 1) {
      kernel.StoreResult();
    } else {
      kernel.StorePartial();
      if constexpr (kJoinsSplits) kernel.JoinSplits();
    }
    simt::TriggerNextGrid();
  }

 private:
  using Sum = typename Numbers::Sum;
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kRowGroupBytes = 8 * kRowBytes;        // A matrix for warp groups begins at a multiple.
  static constexpr int kBlockSteps = kByteBlockColumns / 32;  // Products of 32 columns.

  explicit QUIRE_DEVICE RoundedProductKernel(const RoundedProductArgs& args)
      : args_(args),
        row_block_(simt::BlockIndex() % args.num_row_blocks),
        split_(simt::BlockIndex() / args.num_row_blocks % args.num_splits),
        first_token_(simt::BlockIndex() / args.num_row_blocks / args.num_splits * kTokens),
        num_tokens_(args.num_tokens - first_token_),
        tile_((row_block_ * kWarps + simt::WarpIndex()) * kRowTiles),
        last_tile_(args.padded_rows / kByteTileRows - 1) {}

  // Missing tiles multiply the last one again, so that all warps have the same way.
  QUIRE_DEVICE int ReadTile(int r) const { return tile_ + r < last_tile_ ? tile_ + r : last_tile_; }

  // Returns the place of a chunk among the rows of a stage that begin at a multiple of eight rows.
  static QUIRE_DEVICE int PlaceOf(int row, int chunk) { return row * kRowBytes + 16 * (chunk ^ row % 8); }

  static QUIRE_DEVICE int TileOfStage(int r) { return kXBytes + (simt::WarpIndex() * kRowTiles + r) * kTileBytes; }

  QUIRE_DEVICE void CopyBlock(int block, char* stage) const {
    constexpr int kStep = kThreads / kChunks;             // Tokens that all threads copy at a time.
    constexpr int kWarpStep = simt::kWarpSize / kChunks;  // Rows that a warp copies at a time.
    const int chunk = simt::ThreadIndex() % kChunks, first = simt::ThreadIndex() / kChunks;
    const int64_t column = int64_t{block} * kRowBytes + 16 * chunk, depth = args_.depth;
    if (kStep <= kTokens || first < kTokens) {
      char* const to = stage + PlaceOf(first, chunk);
      const int8_t* from = args_.x + (first_token_ + first) * depth + column;
      QUIRE_UNROLL for (int i = 0; i < kTokens; i += kStep) {
        simt::CopyAsync16(to + i * kRowBytes, from, first + i < num_tokens_);
        from += kStep * depth;
      }
    }
    const int first_row = simt::LaneIndex() / kChunks;
    QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
      const int8_t* from = args_.w + (int64_t{ReadTile(r)} * kByteTileRows + first_row) * depth + column;
      QUIRE_UNROLL for (int i = 0; i < kByteTileRows; i += kWarpStep) {
        simt::CopyAsync16(stage + TileOfStage(r) + PlaceOf(first_row + i, chunk), from, true);
        from += kWarpStep * depth;
      }
    }
  }

  // Returns the scales of a stage, which lie behind all stages.
  static QUIRE_DEVICE float* ScalesOf(int stage) {
    return reinterpret_cast<float*>(simt::SharedMemory() + kStages * kStageBytes + stage * kScaleBytes);
  }

  // The last thread that copies has the scales of weights.
  QUIRE_DEVICE void CopyScales(int block, float* to) const {
    static_assert(kRows == kScaledRows && kByteBlockColumns == kScaledColumns);
    constexpr int kTokenChunks = kTokens / kScaleMultiple;
    const int first = kScaleMultiple * simt::ThreadIndex();
    if (simt::ThreadIndex() < kTokenChunks) {
      const float* const from = args_.x_scales + int64_t{block} * args_.x_scale_stride + first_token_ + first;
      simt::CopyAsync16(to + first, from, first < num_tokens_);
    } else if (simt::ThreadIndex() == kTokenChunks) {
      const int64_t row = int64_t{row_block_} * args_.w_scale_stride;
      simt::CopyAsync16(to + first, args_.w_scales + row + block / kScaleMultiple * kScaleMultiple, true);
    }
  }

  QUIRE_DEVICE void MultiplySplit() {
    QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
      QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
        QUIRE_UNROLL for (int j = 0; j < 4; ++j) sums_[r][i][j] = 0;
      }
    }
    const int first = split_ * args_.blocks_per_split, num_blocks = args_.depth / kByteBlockColumns;
    const int last = first + args_.blocks_per_split, end = last < num_blocks ? last : num_blocks;
    const auto copy = [&](int block, int stage) {
      if (block < end) {
        CopyBlock(block, simt::SharedMemory() + stage * kStageBytes);
        if constexpr (Numbers::kHasBlockScales) CopyScales(block, ScalesOf(stage));
      }
      simt::CommitCopies();
    };
    QUIRE_NO_UNROLL for (int s = 0; s < kStages - 1; ++s) copy(first + s, s);
    int stage = 0;
    QUIRE_NO_UNROLL for (int block = first; block < end; ++block) {
      simt::WaitCopies<kStages - 2>();
      if constexpr (Numbers::kHasWarpGroups) simt::FenceAsyncProxy();
      simt::SyncBlock();  // Everybody's copies of this block have landed, and the buffer of the block before is free.
      copy(block + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      if constexpr (Numbers::kHasWarpGroups) {
        MultiplyByWarpGroups(simt::SharedMemory() + stage * kStageBytes, ScalesOf(stage), block % kScaleMultiple);
      } else {
        MultiplyByWarps(simt::SharedMemory() + stage * kStageBytes);
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    simt::WaitCopies<0>();
  }

  // A tile of rows needs two chunks of 16 rows for a product of 32 columns, and a tile of tokens two chunks of 8 rows.
  // One load gives the chunks of tokens for two products.
  QUIRE_DEVICE void MultiplyByWarps(const char* stage) {
    const int lane = simt::LaneIndex();
    QUIRE_UNROLL for (int step = 0; step < kBlockSteps; step += 2) {
      uint32_t w[2][kRowTiles][4];
      QUIRE_UNROLL for (int s = 0; s < 2; ++s) {
        QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
          simt::LoadMatrix4(w[s][r], stage + TileOfStage(r) + PlaceOf(lane % 16, 2 * (step + s) + lane / 16));
        }
      }
      QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
        uint32_t x[4];
        simt::LoadMatrix4(x, stage + PlaceOf(8 * i + lane % 8, 2 * step + lane / 8));
        QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
          simt::MmaS8(sums_[r][i], w[0][r], x[0], x[1]);
          simt::MmaS8(sums_[r][i], w[1][r], x[2], x[3]);
        }
      }
    }
  }

  // The four tiles of a warp group lie one behind the other, and chunks are where the products want them. The scale of
  // the weights is the one of this index.
  QUIRE_DEVICE void MultiplyByWarpGroups(const char* stage, const float* scales, int w_scale_index) {
    static_assert(kRowTiles == 1 && kXBytes % kRowGroupBytes == 0 && kStageBytes % kRowGroupBytes == 0);
    const int first_warp = simt::WarpIndex() / 4 * 4;
    // All columns are in one panel. A step has 32 bytes, the columns of 16 elements.
    const uint64_t w =
        simt::MatrixDescriptor(stage + kXBytes + first_warp * kTileBytes, /*panel_bytes=*/kRowGroupBytes);
    const uint64_t x = simt::MatrixDescriptor(stage, /*panel_bytes=*/kRowGroupBytes);
    float sums[kTokenTiles][4];
    simt::BeginProducts(sums);
    simt::Repeat<kBlockSteps>([&](auto step) {
      simt::MultiplyFp8(sums, simt::AtColumn(w, 16 * step), simt::AtColumn(x, 16 * step), step > 0);
    });
    simt::CommitProducts();
    [[maybe_unused]] float factors[kTokenTiles][2];
    if constexpr (Numbers::kHasBlockScales) LoadFactors(scales, w_scale_index, factors);
    simt::WaitForProducts(sums);
    QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
        const float sum = sums[i][j];
        if constexpr (Numbers::kHasBlockScales) {
          sums_[0][i][j] += sum * factors[i][j % 2];
        } else {
          sums_[0][i][j] = Numbers::Add(sums_[0][i][j], sum);
        }
      }
    }
  }

  // Loads the product of both scales for each token of my lane's sums.
  static QUIRE_DEVICE void LoadFactors(const float* scales, int w_scale_index, float (&factors)[kTokenTiles][2]) {
    const float w_scale = simt::LoadShared(scales + kTokens + w_scale_index);
    QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
      const float* const pair = scales + 8 * i + 2 * (simt::LaneIndex() % 4);
      const simt::U32x2 words = simt::LoadShared(reinterpret_cast<const simt::U32x2*>(pair));
      memcpy(factors[i], words.word, sizeof(factors[i]));
      QUIRE_UNROLL for (int j = 0; j < 2; ++j) factors[i][j] *= w_scale;
    }
  }

  // Calls f(token, row, sum) for the sums of my lane that are elements of a matrix of num_rows rows.
  template <typename F>
  QUIRE_DEVICE void ForEachSum(int num_rows, F f) const {
    ForEachSumOfLane(sums_, tile_, last_tile_, num_tokens_, num_rows,
                     [&](int token, int row, Sum sum) { f(first_token_ + token, row, sum); });
  }

  QUIRE_DEVICE void StoreToY(int token, int row, Sum sum) const {
    float product;
    if constexpr (Numbers::kHasBlockScales) {
      product = sum;
    } else {
      const float x_scale = simt::LoadGlobal(args_.x_scales + token);
      product = ScaledSum(sum, x_scale, simt::LoadReadOnly(args_.w_scales + row));
    }
    StoreProduct<Element>(args_.y, args_.y_is_float, args_.adds_to_y, token * args_.y_stride + row, product);
  }

  QUIRE_DEVICE void StoreResult() const {
    ForEachSum(args_.rows, [&](int token, int row, Sum sum) { StoreToY(token, row, sum); });
  }

  QUIRE_DEVICE StoredSums<Sum> Partial() const {
    return {static_cast<Sum*>(args_.partial), args_.split_stride, args_.padded_rows, args_.num_splits};
  }

  QUIRE_DEVICE void StorePartial() const {
    Sum* const partial = Partial().OfSplit(split_);
    ForEachSum(args_.padded_rows, [&](int token, int row, Sum sum) {
      simt::StoreGlobal(partial + int64_t{token} * args_.padded_rows + row, sum);
    });
  }

  // The last thread block that has stored its partial sums of these rows adds all splits.
  QUIRE_DEVICE void JoinSplits() const {
    if (!IsLastSplit(args_.tickets + row_block_, args_.num_splits)) return;
    Partial().template Join<kRows, kThreads>(
        row_block_ * kRows, args_.rows, args_.num_tokens, [](Sum a, Sum b) { return Numbers::Add(a, b); },
        [&](int token, int row, Sum sum) { StoreToY(token, row, sum); });
  }

  const RoundedProductArgs& args_;
  const int row_block_, split_, first_token_, num_tokens_, tile_, last_tile_;
  // The sums of rows g and g + 8 of a tile and tokens 8 i + 2 t and 8 i + 2 t + 1, where g = lane / 4 and t = lane % 4.
  Sum sums_[kRowTiles][kTokenTiles][4];
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROUNDED_PRODUCT_H_
