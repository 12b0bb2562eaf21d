// SPDX-License-Identifier: Apache-2.0

#include "bench/register_loops.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "bench/clocks.h"
#include "kernels/cpu/isa/cpu_features.h"
#if defined(__x86_64__)
#define QUIRE_CPU_NAMESPACE register_loops
#include "kernels/cpu/isa/amx_tile.h"
#endif

namespace quire {
namespace {

constexpr int kIterationsPerCall = 2000;

#if defined(__x86_64__)
// The loops are written in assembly, because then no compiler can drop them, and no flag of the compiler is needed.
// Twelve sums cover the latency of an instruction that two units begin in every cycle. Multiplying zeros takes as long
// as multiplying other numbers.

#define QUIRE_TWELVE(instruction, a, b, sum)                                                        \
  instruction a b sum "0\n" instruction a b sum "1\n" instruction a b sum "2\n" instruction a b sum \
                      "3\n" instruction a b sum "4\n" instruction a b sum "5\n" instruction a b sum \
                      "6\n" instruction a b sum "7\n" instruction a b sum "8\n" instruction a b sum \
                      "9\n" instruction a b sum "10\n" instruction a b sum "11\n"
#define QUIRE_VECTOR_LOOP(body)                                                                                 \
  asm volatile("vzeroall\n1:\n" body "decq %0\njnz 1b\nvzeroupper"                                              \
               : "+r"(iterations)                                                                               \
               :                                                                                                \
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                 "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

void RunAvx2Fma(int64_t iterations) {
  QUIRE_VECTOR_LOOP(QUIRE_TWELVE("vfmadd231ps ", "%%ymm12, ", "%%ymm13, ", "%%ymm"));
}

void RunAvx512Fma(int64_t iterations) {
  QUIRE_VECTOR_LOOP(QUIRE_TWELVE("vfmadd231ps ", "%%zmm12, ", "%%zmm13, ", "%%zmm"));
}

void RunVnniInt8(int64_t iterations) {
  QUIRE_VECTOR_LOOP(QUIRE_TWELVE("vpdpbusd ", "%%zmm12, ", "%%zmm13, ", "%%zmm"));
}

void RunAvx512Bf16(int64_t iterations) {
  QUIRE_VECTOR_LOOP(QUIRE_TWELVE("vdpbf16ps ", "%%zmm12, ", "%%zmm13, ", "%%zmm"));
}
#undef QUIRE_VECTOR_LOOP
#undef QUIRE_TWELVE

// All eight tiles have their full size: four sums, two left and two right operands.
cpu::register_loops::TileShapes FullTiles() {
  using cpu::register_loops::kTileRowBytes, cpu::register_loops::kTileRows;
  cpu::register_loops::TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.Set(tile, kTileRows, kTileRowBytes);
  return shapes;
}

#define QUIRE_TILE_LOOP(instruction)                                                           \
  const auto shapes = FullTiles();                                                             \
  asm volatile("ldtilecfg %1\n1:\n" instruction " %%tmm6, %%tmm4, %%tmm0\n" instruction        \
               " %%tmm7, %%tmm4, %%tmm1\n" instruction " %%tmm6, %%tmm5, %%tmm2\n" instruction \
               " %%tmm7, %%tmm5, %%tmm3\ndecq %0\njnz 1b\ntilerelease"                         \
               : "+r"(iterations)                                                              \
               : "m"(shapes)                                                                   \
               : "cc")

void RunAmxBf16(int64_t iterations) {
  QUIRE_TILE_LOOP("tdpbf16ps");
}

void RunAmxInt8(int64_t iterations) {
  QUIRE_TILE_LOOP("tdpbusd");
}
#undef QUIRE_TILE_LOOP

constexpr double kVectorSums = 12, kTileSums = 4;
constexpr RegisterLoop kAvx2Fma{"avx2_fma", 2 * 8 * kVectorSums, RunAvx2Fma};
constexpr RegisterLoop kAvx512Fma{"avx512_fma", 2 * 16 * kVectorSums, RunAvx512Fma};
constexpr RegisterLoop kVnniInt8{"vnni_int8", 2 * 64 * kVectorSums, RunVnniInt8};
constexpr RegisterLoop kAvx512Bf16{"avx512_bf16", 2 * 32 * kVectorSums, RunAvx512Bf16};
constexpr RegisterLoop kAmxBf16{"amx_bf16", 2 * 16 * 16 * 32 * kTileSums, RunAmxBf16};
constexpr RegisterLoop kAmxInt8{"amx_int8", 2 * 16 * 16 * 64 * kTileSums, RunAmxInt8};
#endif

}  // namespace

std::vector<RegisterLoop> SupportedRegisterLoops() {
  std::vector<RegisterLoop> loops;
#if defined(__x86_64__)
  // The call also asks the operating system for permission to use the tiles.
  for (const cpu::Isa isa : cpu::SupportedIsas()) {
    if (isa == cpu::Isa::kAvx2) loops.push_back(kAvx2Fma);
    if (isa == cpu::Isa::kAvx512) loops.push_back(kAvx512Fma);
    if (isa == cpu::Isa::kAvx512Vnni) loops.push_back(kVnniInt8);
    if (isa == cpu::Isa::kAvx512Bf16) loops.push_back(kAvx512Bf16);
    if (isa == cpu::Isa::kAmx) loops.insert(loops.end(), {kAmxBf16, kAmxInt8});
  }
#endif
  return loops;
}

double MeasureRegisterLoop(const RegisterLoop& loop, int threads, double seconds) {
  std::atomic<int> num_ready = 0;
  std::vector<double> rates(threads);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      loop.run(kIterationsPerCall);
      ++num_ready;
      while (num_ready.load() < threads) std::this_thread::yield();
      const double start = WallSeconds();
      double elapsed = 0;
      int64_t iterations = 0;
      while (elapsed < seconds) {
        loop.run(kIterationsPerCall);
        iterations += kIterationsPerCall;
        elapsed = WallSeconds() - start;
      }
      rates[i] = loop.operations * static_cast<double>(iterations) / elapsed;
    });
  }
  double sum = 0;
  for (int i = 0; i < threads; ++i) {
    running[i].join();
    sum += rates[i];
  }
  return sum;
}

}  // namespace quire
