// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ISA_AMX_INSTRUCTIONS_H_
#define QUIRE_KERNELS_CPU_ISA_AMX_INSTRUCTIONS_H_

#include <cstdint>

#include "kernels/cpu/isa/amx_tile.h"

// The instructions of AMX. The number of a register is part of the instruction, so it is a template argument here. The
// compiler's own intrinsics are macros that accept only literals. Only amx_tile.h includes this file.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Eight instructions of one byte that do nothing, behind each load and product of tiles. They occupy entries of the
// reorder buffer. While the other hardware thread of the core uses tiles as well, loads and products of tiles hardly
// overlap if nothing stands between them (README.md has the figures).
#define QUIRE_TILE_GAP "\n\t.fill 8, 1, 0x90"

// Sets the shapes of all tiles and clears their contents.
inline void ConfigureTiles(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" ::"m"(shapes));
}
// Releases the tiles, so that the operating system need not save them.
inline void ReleaseTiles() {
  asm volatile("tilerelease" ::: "memory");
}

template <int kTile>
QUIRE_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// Consecutive rows are `stride` bytes apart.
template <int kTile>
QUIRE_INLINE void LoadTile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" QUIRE_TILE_GAP ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}
// The same for data that should not displace others from the first-level cache.
template <int kTile>
QUIRE_INLINE void StreamTile(const void* from, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" QUIRE_TILE_GAP ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
QUIRE_INLINE void StoreTile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
}
// sums[m][n] += a[m][2 k] * b[k][2 n] + a[m][2 k + 1] * b[k][2 n + 1] over all k, from pairs of bfloat16 to float32.
// Every element of the sums is computed in the same way, however many rows the tiles have.
template <int kSums, int kA, int kB>
QUIRE_INLINE void MultiplyTiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" QUIRE_TILE_GAP ::"i"(kSums), "i"(kA), "i"(kB));
}

// sums[m][n] += a[m][4 k] * b[k][4 n] + ... + a[m][4 k + 3] * b[k][4 n + 3] over all k, from signed bytes to int32,
// which wraps and does not saturate.
template <int kSums, int kA, int kB>
QUIRE_INLINE void MultiplySigned() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" QUIRE_TILE_GAP ::"i"(kSums), "i"(kA), "i"(kB));
}
// The same for unsigned bytes in b.
template <int kSums, int kA, int kB>
QUIRE_INLINE void MultiplySignedByUnsigned() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" QUIRE_TILE_GAP ::"i"(kSums), "i"(kA), "i"(kB));
}
// The same for unsigned bytes in a.
template <int kSums, int kA, int kB>
QUIRE_INLINE void MultiplyUnsignedBySigned() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" QUIRE_TILE_GAP ::"i"(kSums), "i"(kA), "i"(kB));
}

#undef QUIRE_TILE_GAP

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ISA_AMX_INSTRUCTIONS_H_
