// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_SIMT_MATRIX_PRODUCT_H_
#define QUIRE_TESTS_KERNELS_SIMT_MATRIX_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/simt/simt.h"

namespace quire::simt {

// A matrix product in the style of a GPU kernel, to show that the device layer is sufficient for one. It uses tiles of
// 64 x 64 per block of four warps, k in steps of 64 through a ring of asynchronous copies, ldmatrix and mma. The tests
// can plant mistakes in it.
struct MatrixProductArgs {
  const uint16_t* a;  // [m][k] bfloat16
  const uint16_t* b;  // [k][n] bfloat16
  float* c;           // [m][n]
  int m;
  int n;  // A multiple of 8, like k.
  int k;
};

enum class Mistake {
  kNone,
  kWaitForOneGroupTooFew,
  kNoBarrierAfterTheWait,
  kRefillTheTileInUse,
  kNoSwizzle,  // Correct but slow: rows of 128 bytes begin in the same bank.
  kRowsBeyondTheEnd,
};

constexpr int kTile = 64;  // Rows and columns of all three tiles.
constexpr int kTileBytes = kTile * kTile * 2;
constexpr int kProductThreads = 128;
constexpr int kStages = 2;
constexpr int kProductSharedBytes = kStages * 2 * kTileBytes;

// Returns the 16 bytes of the columns 8 * chunk .. 8 * chunk + 7 of a row of a tile.
template <Mistake kMistake>
QUIRE_DEVICE char* Chunk(char* tile, int row, int chunk) {
  const int place = kMistake == Mistake::kNoSwizzle ? chunk : chunk ^ (row & 7);
  return tile + (row * (kTile / 8) + place) * 16;
}

// Starts the copy of a tile. Elements beyond the matrix become zero.
template <Mistake kMistake>
QUIRE_DEVICE void CopyTile(char* tile, const uint16_t* matrix, int rows, int columns, int first_row, int first_column) {
  QUIRE_UNROLL
  for (int i = ThreadIndex(); i < kTile * kTile / 8; i += kProductThreads) {
    const int row = first_row + i / (kTile / 8);
    const int column = first_column + i % (kTile / 8) * 8;
    const bool is_inside = (row < rows || kMistake == Mistake::kRowsBeyondTheEnd) && column < columns;
    CopyAsync16(Chunk<kMistake>(tile, row - first_row, i % (kTile / 8)),
                matrix + static_cast<ptrdiff_t>(row) * columns + column, is_inside);
  }
}

template <Mistake kMistake = Mistake::kNone>
QUIRE_DEVICE void MatrixProduct(const MatrixProductArgs& args) {
  const int tiles_across = (args.n + kTile - 1) / kTile;
  const int first_row = BlockIndex() / tiles_across * kTile;
  const int first_column = BlockIndex() % tiles_across * kTile;
  const int num_steps = (args.k + kTile - 1) / kTile;
  const int lane = LaneIndex();

  const auto stage = [&](int step) { return SharedMemory() + step % kStages * 2 * kTileBytes; };
  const auto issue = [&](int step) {
    if (step < num_steps) {
      CopyTile<kMistake>(stage(step), args.a, args.m, args.k, first_row, step * kTile);
      CopyTile<kMistake>(stage(step) + kTileBytes, args.b, args.k, args.n, step * kTile, first_column);
    }
    CommitCopies();  // The group is empty at the end, so that the number of groups in flight stays the same.
  };

  float c[kTile / 8][4] = {};
  for (int step = 0; step < kStages - 1; ++step) issue(step);
  for (int step = 0; step < num_steps; ++step) {
    WaitCopies<kMistake == Mistake::kWaitForOneGroupTooFew ? kStages - 1 : kStages - 2>();
    if (kMistake != Mistake::kNoBarrierAfterTheWait) SyncBlock();
    // All threads have passed the barrier, so no thread reads the tile of the last step any more.
    issue(kMistake == Mistake::kRefillTheTileInUse ? step + kStages : step + kStages - 1);

    char* const tile_a = stage(step);
    char* const tile_b = tile_a + kTileBytes;
    QUIRE_UNROLL
    for (int k = 0; k < kTile / 16; ++k) {
      const int matrix_row = lane / 8 % 2 * 8 + lane % 8;
      uint32_t a[4];
      LoadMatrix4(a, Chunk<kMistake>(tile_a, WarpIndex() * 16 + matrix_row, 2 * k + lane / 16));
      QUIRE_UNROLL
      for (int pair = 0; pair < kTile / 16; ++pair) {
        uint32_t b[4];
        LoadMatrix4Transposed(b, Chunk<kMistake>(tile_b, k * 16 + matrix_row, 2 * pair + lane / 16));
        MmaBf16(c[2 * pair], a, b[0], b[1]);
        MmaBf16(c[2 * pair + 1], a, b[2], b[3]);
      }
    }
  }
  WaitCopies<0>();

  QUIRE_UNROLL
  for (int i = 0; i < kTile / 8; ++i) {
    QUIRE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + WarpIndex() * 16 + lane / 4 + half * 8;
      const int column = first_column + i * 8 + 2 * (lane % 4);
      if (row >= args.m || column >= args.n) continue;
      float* const to = args.c + static_cast<ptrdiff_t>(row) * args.n + column;
      StoreGlobal(to, c[i][2 * half]);
      StoreGlobal(to + 1, c[i][2 * half + 1]);
    }
  }
}

}  // namespace quire::simt

#endif  // QUIRE_TESTS_KERNELS_SIMT_MATRIX_PRODUCT_H_
