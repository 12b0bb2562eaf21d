// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_TILES_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_TILES_H_

#include "kernels/cpu/isa/amx_tile.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_task.h"

// This is shared by all products of bfloat16 by AMX tiles. A tile holds 32 k of 16 rows of x, or 16 pairs of k of 16
// columns of a panel, or the sums of 16 rows by 16 columns. One product adds 32 k to each sum in an order that is the
// same for every row. Therefore a row's sums do not depend on which tile, and which row of the tile, holds the row.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kProductSteps = 32;                                       // Number of k that one product adds.
constexpr int kProductElements = kProductSteps * kPanelColumns;         // Elements of a panel for these k.
constexpr int kPairStride = 2 * kPanelColumns * int(sizeof(BFloat16));  // Bytes from one pair of k to the next.
constexpr int kSumsStride = kPanelColumns * int(sizeof(float));
constexpr int kTileSums = kTileRows * kPanelColumns;  // Sums of 16 rows by one panel.

// Tile registers: two for 16 rows of x each, two for 16 columns of weights each, and four for the sums.
constexpr int kX0 = 4, kX1 = 5, kW0 = 6, kW1 = 7;
constexpr int kSum00 = 0, kSum01 = 1, kSum10 = 2, kSum11 = 3;

// Configures the tile registers of this thread while it exists. The tiles of x and of sums have `rows` rows.
class LinearTiles {
 public:
  explicit LinearTiles(int rows) {
    TileShapes shapes;
    for (const int tile : {kSum00, kSum01, kSum10, kSum11, kX0, kX1}) shapes.Set(tile, rows, kTileRowBytes);
    for (const int tile : {kW0, kW1}) shapes.Set(tile, kTileRows, kTileRowBytes);
    ConfigureTiles(shapes);
  }
  ~LinearTiles() { ReleaseTiles(); }
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_TILES_H_
