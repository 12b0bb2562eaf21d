// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_SOFTWARE_TILES_H_
#define QUIRE_TESTS_KERNELS_SOFTWARE_TILES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/isa/amx_tile.h"

// The functions of amx_instructions.h with tiles in memory, after the pseudo code of the instructions in volume 2 of
// Intel's SDM. What a processor refuses with a fault ends the program with a message. Each thread has its own tiles.
// Only amx_tile.h includes this file.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kNumTiles = 8;

struct SoftwareTile {
  alignas(64) uint8_t bytes[kTileRows][kTileRowBytes] = {};
  int rows = 0;  // 0 in a tile without a shape.
  int row_bytes = 0;
};

inline SoftwareTile* SoftwareTiles() {
  static thread_local SoftwareTile tiles[kNumTiles];
  return tiles;
}

inline void CheckTiles(bool is_valid, const char* what) {
  if (is_valid) return;
  fprintf(stderr, "A processor would refuse the tile instruction: %s.\n", what);
  abort();
}

inline SoftwareTile& ShapedTile(int tile) {
  SoftwareTile& t = SoftwareTiles()[tile];
  CheckTiles(t.rows > 0, "the tile has no shape");
  return t;
}

inline void ConfigureTiles(const TileShapes& shapes) {
  CheckTiles(shapes.palette == 1, "palette 1 is the only one");
  CheckTiles(shapes.start_row == 0, "the start row is 0 unless an instruction was interrupted");
  for (const uint8_t byte : shapes.reserved) CheckTiles(byte == 0, "the reserved bytes are 0");
  for (int i = 0; i < 16; ++i) {
    const int rows = shapes.rows[i], row_bytes = shapes.row_bytes[i];
    CheckTiles(i < kNumTiles || (rows == 0 && row_bytes == 0), "there are 8 tiles");
    CheckTiles(rows <= kTileRows && row_bytes <= kTileRowBytes, "a tile has at most 16 rows of 64 bytes");
    CheckTiles((rows == 0) == (row_bytes == 0), "a tile has rows and bytes or neither");
    if (i >= kNumTiles) continue;
    SoftwareTiles()[i] = SoftwareTile{};
    SoftwareTiles()[i].rows = rows;
    SoftwareTiles()[i].row_bytes = row_bytes;
  }
}
inline void ReleaseTiles() {
  for (int i = 0; i < kNumTiles; ++i) SoftwareTiles()[i] = SoftwareTile{};
}

inline void ClearBytes(SoftwareTile* tile) {
  memset(tile->bytes, 0, sizeof(tile->bytes));
}
template <int kTile>
inline void ZeroTile() {
  ClearBytes(&ShapedTile(kTile));
}
template <int kTile>
inline void LoadTile(const void* from, int64_t stride) {
  SoftwareTile& tile = ShapedTile(kTile);
  ClearBytes(&tile);
  for (int row = 0; row < tile.rows; ++row) {
    memcpy(tile.bytes[row], static_cast<const char*>(from) + row * stride, tile.row_bytes);
  }
}
template <int kTile>
inline void StreamTile(const void* from, int64_t stride) {
  LoadTile<kTile>(from, stride);
}
template <int kTile>
inline void StoreTile(void* to, int64_t stride) {
  const SoftwareTile& tile = ShapedTile(kTile);
  for (int row = 0; row < tile.rows; ++row) {
    memcpy(static_cast<char*>(to) + row * stride, tile.bytes[row], tile.row_bytes);
  }
}

// The operands of a product: sums [m, n] += a [m, k] * b [k, n], where each element of a and b has 4 bytes.
struct ProductOperands {
  SoftwareTile& sums;
  const SoftwareTile& a;
  const SoftwareTile& b;

  ProductOperands(int sums_tile, int a_tile, int b_tile)
      : sums(ShapedTile(sums_tile)), a(ShapedTile(a_tile)), b(ShapedTile(b_tile)) {
    CheckTiles(sums_tile != a_tile && sums_tile != b_tile && a_tile != b_tile, "the operands are different tiles");
    CheckTiles(sums.row_bytes % 4 == 0 && a.row_bytes % 4 == 0 && b.row_bytes % 4 == 0, "elements have 4 bytes");
    CheckTiles(sums.rows == a.rows, "the sums have the rows of a");
    CheckTiles(a.row_bytes / 4 == b.rows, "the columns of a are the rows of b");
    CheckTiles(sums.row_bytes == b.row_bytes, "the sums have the columns of b");
  }
};

// Inputs that are no normal numbers count as zeros with their sign.
inline float WithoutSubnormal(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
// a * b + c, rounded to nearest even. A result that is below the normal numbers, when it is rounded to 24 bits with an
// exponent of any size, becomes zero with its sign. The sum in double decides that exactly: a and b have 8 bits each,
// or b is 1 and the sum has no more bits than a float. REQUIRES: the operands are not subnormal.
inline float FlushedFma(float a, float b, float c) {
  constexpr double kLeast = 0x1p-126 - 0x1p-151;
  const float rounded = std::fma(a, b, c);
  return std::fabs(double{a} * double{b} + double{c}) < kLeast ? std::copysign(0.0f, rounded) : rounded;
}

// Adds a * b[n] to each of the sums.
template <int kCount>
inline void AddProducts(float a, const float* b, float* sums) {
  float rounded[kCount];
  uint32_t bits[kCount], least = UINT32_MAX;
  for (int n = 0; n < kCount; ++n) rounded[n] = std::fma(a, b[n], sums[n]);
  memcpy(bits, rounded, sizeof(bits));
  // The order of the bits is the order of the magnitudes. NaNs come last.
  for (int n = 0; n < kCount; ++n) least = std::min(least, bits[n] & 0x7fffffff);
  constexpr uint32_t kSmallestNormal = 0x00800000;
  if (least <= kSmallestNormal) {  // Seldom.
    for (int n = 0; n < kCount; ++n) rounded[n] = FlushedFma(a, b[n], sums[n]);
  }
  memcpy(sums, rounded, sizeof(rounded));
}

// The sums of the even and of the odd k are separate until the end.
template <int kSums, int kA, int kB>
inline void MultiplyTiles() {
  const ProductOperands tiles(kSums, kA, kB);
  constexpr int kPairs = kTileRowBytes / 4;
  using Halves = float[2][kTileRows][kPairs];  // The even elements, and the odd ones.
  alignas(64) Halves a, b;
  const auto widen = [](const SoftwareTile& tile, Halves& to) {
    for (int row = 0; row < kTileRows; ++row) {
      for (int i = 0; i < kPairs; ++i) {
        uint32_t pair;
        memcpy(&pair, &tile.bytes[row][4 * i], sizeof(pair));
        const uint32_t halves[] = {pair << 16, pair & 0xffff0000};
        for (int odd = 0; odd < 2; ++odd) {
          float value;
          memcpy(&value, &halves[odd], sizeof(value));
          to[odd][row][i] = WithoutSubnormal(value);
        }
      }
    }
  };
  widen(tiles.a, a);
  widen(tiles.b, b);
  for (int m = 0; m < tiles.sums.rows; ++m) {
    alignas(64) float halves[2][kPairs] = {};
    for (int odd = 0; odd < 2; ++odd) {
      for (int k = 0; k < tiles.b.rows; ++k) AddProducts<kPairs>(a[odd][m][k], b[odd][k], halves[odd]);
    }
    float sums[kPairs];
    memcpy(sums, tiles.sums.bytes[m], sizeof(sums));
    for (int n = 0; n < tiles.sums.row_bytes / 4; ++n) {
      const float sum = FlushedFma(halves[0][n], 1, halves[1][n]);
      sums[n] = FlushedFma(sum, 1, WithoutSubnormal(sums[n]));
    }
    memcpy(tiles.sums.bytes[m], sums, size_t(tiles.sums.row_bytes));
  }
}

// The products of bytes, where A and B are the types of the bytes.
template <typename A, typename B, int kSums, int kA, int kB>
inline void MultiplyByteTiles() {
  const ProductOperands tiles(kSums, kA, kB);
  for (int m = 0; m < tiles.sums.rows; ++m) {
    int32_t sums[kTileRowBytes / 4];
    memcpy(sums, tiles.sums.bytes[m], sizeof(sums));
    for (int k = 0; k < tiles.b.rows; ++k) {
      for (int n = 0; n < tiles.sums.row_bytes / 4; ++n) {
        for (int i = 0; i < 4; ++i) {
          const int product = int(A(tiles.a.bytes[m][4 * k + i])) * int(B(tiles.b.bytes[k][4 * n + i]));
          sums[n] = int32_t(uint32_t(sums[n]) + uint32_t(product));
        }
      }
    }
    memcpy(tiles.sums.bytes[m], sums, size_t(tiles.sums.row_bytes));
  }
}
template <int kSums, int kA, int kB>
inline void MultiplySigned() {
  MultiplyByteTiles<int8_t, int8_t, kSums, kA, kB>();
}
template <int kSums, int kA, int kB>
inline void MultiplySignedByUnsigned() {
  MultiplyByteTiles<int8_t, uint8_t, kSums, kA, kB>();
}
template <int kSums, int kA, int kB>
inline void MultiplyUnsignedBySigned() {
  MultiplyByteTiles<uint8_t, int8_t, kSums, kA, kB>();
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_TESTS_KERNELS_SOFTWARE_TILES_H_
