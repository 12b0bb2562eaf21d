// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_AMX_TILE_H_
#define QUIRE_KERNELS_CPU_ISA_AMX_TILE_H_

#include <cstdint>

#include "kernels/cpu/isa/simd.h"

// The eight tile registers of AMX: matrices of up to 16 rows of 64 bytes (Intel SDM volume 1, chapter 18). A test can
// run the kernels without these registers: QUIRE_TILE_HEADER names a header with other functions for tiles.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kTileRows = 16;
constexpr int kTileRowBytes = 64;

// The operand of LDTILECFG.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  constexpr void Set(int tile, int num_rows, int bytes) {
    rows[tile] = uint8_t(num_rows);
    row_bytes[tile] = uint16_t(bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#if defined(QUIRE_TILE_HEADER)
#include QUIRE_TILE_HEADER
#else
#include "kernels/cpu/isa/amx_instructions.h"
#endif

#endif  // QUIRE_KERNELS_CPU_ISA_AMX_TILE_H_
