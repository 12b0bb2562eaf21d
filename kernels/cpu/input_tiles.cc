// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/input_tiles.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/rounding.h"
#include "kernels/cpu/table/kernel_table.h"

namespace quire::cpu {
namespace {

// Threads make copies of their own only if the copy is at most this part of the weights that a thread multiplies.
constexpr int kMinWeightsPerRow = 8;

// Stores up to 32 rows of x, and the columns from `first` to `end`, as pairs of tiles.
void CopyToTiles(const BFloat16* x, int64_t x_stride, int num_rows, int first, int end, BFloat16* tiles) {
  for (int row = 0; row < kTilePairRows; ++row, x += x_stride, tiles += kTileStep) {
    BFloat16* to = tiles;
    for (int k = first; k < end; k += kTileStep, to += kTilePairElements) {
      const int n = row < num_rows ? std::min(kTileStep, end - k) : 0;
      if (n == kTileStep) {  // Most copies have this size, and a constant size needs no call of a function.
        memcpy(to, x + k, kTileStep * sizeof(BFloat16));
        continue;
      }
      if (n > 0) memcpy(to, x + k, n * sizeof(BFloat16));
      memset(to + n, 0, (kTileStep - n) * sizeof(BFloat16));
    }
  }
}

}  // namespace

void StoreInTiles(const BFloat16* from, int count, int row, int first, const TileOrder& order, BFloat16* tiles) {
  for (int col = first; col < first + count;) {
    const int block = order.blocks.BlockOf(col / kTileStep), block_first = order.blocks.First(block) * kTileStep;
    const int end = std::min(first + count, block_first + order.blocks.Count(block) * kTileStep);
    BFloat16* const to = tiles + order.PartStart(row / kTilePairRows, block) + int64_t{row % kTilePairRows} * kTileStep;
    while (col < end) {
      const int at = (col - block_first) % kTileStep, n = std::min(kTileStep - at, end - col);
      BFloat16* const tile_row = to + int64_t{(col - block_first) / kTileStep} * kTilePairElements;
      if (n == kTileStep) {
        memcpy(tile_row, from, kTileStep * sizeof(BFloat16));
      } else {
        memcpy(tile_row + at, from, n * sizeof(BFloat16));
      }
      col += n;
      from += n;
    }
  }
}

void InputTiles::Prepare(const CpuPackedMatrix& w, const BFloat16* x, int num_rows) {
  x_ = x;
  num_rows_ = num_rows;
  cols_ = w.cols();
  order_ = TileOrder(num_rows, cols_, w.num_slices());
  const int num_threads = pool_->num_threads();
  is_shared_ = num_rows > kMaxOwnRows ||
               int64_t{num_rows} * num_threads * kMinWeightsPerRow > int64_t{w.num_panels()} * kPanelColumns;
  is_copied_.assign(num_threads, is_shared_);
  copies_.resize(num_threads);
  const size_t bytes = size_t(order_.num_elements()) * sizeof(BFloat16);
  for (int thread = 0; thread < (is_shared_ ? 1 : num_threads); ++thread) GrownTo(bytes, &copies_[thread]);
  if (!is_shared_) return;
  auto* const tiles = static_cast<BFloat16*>(copies_[0].data());
  pool_->ForEach(num_parts(), [&](int part, int) { CopyPart(part, tiles); });
}

const BFloat16* InputTiles::Get(int thread) {
  auto* const tiles = static_cast<BFloat16*>(copies_[is_shared_ ? 0 : thread].data());
  if (!is_copied_[thread]) {
    for (int part = 0; part < num_parts(); ++part) CopyPart(part, tiles);
    is_copied_[thread] = true;
  }
  return tiles;
}

void InputTiles::CopyPart(int part, BFloat16* tiles) const {
  const KBlocks& blocks = order_.blocks;
  const int pair = part / blocks.size, block = part % blocks.size, row = pair * kTilePairRows;
  const int first = blocks.First(block) * kTileStep, end = std::min(first + blocks.Count(block) * kTileStep, cols_);
  CopyToTiles(x_ + int64_t{row} * cols_, cols_, std::min(kTilePairRows, num_rows_ - row), first, end,
              tiles + order_.PartStart(pair, block));
}

}  // namespace quire::cpu
