// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/input_tiles.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/rounding.h"

namespace quire::cpu {
namespace {

// Threads make copies of their own up to this number of rows, and only if the copy is at most this part of the weights
// that a thread multiplies.
constexpr int kMaxOwnRows = 128;
constexpr int kMinWeightsPerRow = 8;

// Stores up to 32 rows of x, and the columns from `first` to `end`, as pairs of tiles.
void CopyToTiles(const BFloat16* x, int64_t x_stride, int num_rows, int first, int end, BFloat16* tiles) {
  for (int row = 0; row < kTilePairRows; ++row, x += x_stride, tiles += kTileStep) {
    BFloat16* to = tiles;
    for (int k = first; k < end; k += kTileStep, to += kTilePairElements) {
      const int n = row < num_rows ? std::min(kTileStep, end - k) : 0;
      if (n == kTileStep) {
        memcpy(to, x + k, kTileStep * sizeof(BFloat16));
        continue;
      }
      if (n > 0) memcpy(to, x + k, n * sizeof(BFloat16));
      memset(to + n, 0, (kTileStep - n) * sizeof(BFloat16));
    }
  }
}

}  // namespace

void InputTiles::Prepare(const CpuPackedMatrix& w, const BFloat16* x, int num_rows, int rows_per_block) {
  x_ = x;
  num_rows_ = num_rows;
  cols_ = w.cols();
  padded_cols_ = w.padded_cols();
  block_cols_ = BlockSteps(cols_) * kTileStep;
  num_pairs_ = CeilDiv(num_rows, kTilePairRows);
  pairs_per_block_ = rows_per_block / kTilePairRows;
  const int num_threads = pool_->num_threads();
  is_shared_ = num_rows > kMaxOwnRows ||
               int64_t{num_rows} * num_threads * kMinWeightsPerRow > int64_t{w.num_panels()} * kPanelColumns;
  is_copied_.assign(num_threads, is_shared_);
  copies_.resize(num_threads);
  const size_t bytes = size_t(num_pairs_) * kTilePairRows * padded_cols_ * sizeof(BFloat16);
  for (int thread = 0; thread < (is_shared_ ? 1 : num_threads); ++thread) GrownTo(bytes, &copies_[thread]);
  if (!is_shared_) return;
  auto* const tiles = static_cast<BFloat16*>(copies_[0].data());
  pool_->ForEach(num_parts(), [&](int part, int) { CopyPart(part, tiles); });
}

const BFloat16* InputTiles::Get(int thread, int row) {
  auto* const tiles = static_cast<BFloat16*>(copies_[is_shared_ ? 0 : thread].data());
  if (!is_copied_[thread]) {
    for (int part = 0; part < num_parts(); ++part) CopyPart(part, tiles);
    is_copied_[thread] = true;
  }
  return tiles + int64_t{row} * padded_cols_;
}

void InputTiles::CopyPart(int part, BFloat16* tiles) const {
  const int pair = part / num_blocks(), row = pair * kTilePairRows;
  const int first_pair = pair / pairs_per_block_ * pairs_per_block_;
  const int num_pairs = std::min(pairs_per_block_, num_pairs_ - first_pair);  // In the same block of rows.
  const int first = part % num_blocks() * block_cols_, end = std::min(first + block_cols_, cols_);
  const int64_t at = int64_t{first_pair} * padded_cols_ + int64_t{num_pairs} * first +
                     int64_t{pair - first_pair} * RoundUp(end - first, kTileStep);
  CopyToTiles(x_ + int64_t{row} * cols_, cols_, std::min(kTilePairRows, num_rows_ - row), first, end,
              tiles + kTilePairRows * at);
}

}  // namespace quire::cpu
