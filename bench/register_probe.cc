// SPDX-License-Identifier: Apache-2.0

#include "bench/register_probe.h"

#include <atomic>

#include "bench/clocks.h"
#include "client/load/samples.h"

#if defined(__x86_64__)
#define QUIRE_CPU_NAMESPACE register_probe
#include "kernels/cpu/amx_tile.h"
#endif

namespace quire {
namespace {

constexpr int kRuns = 5;
constexpr double kSeconds = 0.002;  // Of a run.

#if defined(__x86_64__)

// Each function runs its instruction twelve times for each count, with enough independent sums that the multiplier
// never waits for one of them.
constexpr int kRepeats = 12;

template <typename Multiply>
void RunTiles(int count, Multiply&& multiply) {
  using namespace cpu::register_probe;
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.Set(tile, kTileRows, kTileRowBytes);
  ConfigureTiles(shapes);
  for (int i = 0; i < count * kRepeats / 4; ++i) multiply();
  ReleaseTiles();
}

void TilesOfBFloat16(int count) {
  using namespace cpu::register_probe;
  RunTiles(count, [] {
    MultiplyTiles<0, 4, 6>();
    MultiplyTiles<1, 4, 7>();
    MultiplyTiles<2, 5, 6>();
    MultiplyTiles<3, 5, 7>();
  });
}

void TilesOfBytes(int count) {
  RunTiles(count, [] {
    asm volatile(
        "tdpbusd %tmm6, %tmm4, %tmm0\n\t"
        "tdpbusd %tmm7, %tmm4, %tmm1\n\t"
        "tdpbusd %tmm6, %tmm5, %tmm2\n\t"
        "tdpbusd %tmm7, %tmm5, %tmm3");
  });
}

// Text of twelve instructions, whose operands are registers 12 and 13 and whose sums are registers 0 to 11. A compiler
// would not keep an array of sums in registers for certain.
#define QUIRE_ONE_SUM(name, reg, sum) name " %%" reg "12, %%" reg "13, %%" reg sum "\n\t"
#define QUIRE_FOUR_SUMS(name, reg, a, b, c, d) \
  QUIRE_ONE_SUM(name, reg, a) QUIRE_ONE_SUM(name, reg, b) QUIRE_ONE_SUM(name, reg, c) QUIRE_ONE_SUM(name, reg, d)
#define QUIRE_TWELVE_SUMS(name, reg)             \
  QUIRE_FOUR_SUMS(name, reg, "0", "1", "2", "3") \
  QUIRE_FOUR_SUMS(name, reg, "4", "5", "6", "7") \
  QUIRE_FOUR_SUMS(name, reg, "8", "9", "10", "11")
// Runs them `count` times, from registers that are all zero: other numbers could be denormal, which is slow.
#define QUIRE_RUN_TWELVE(name, reg) \
  asm volatile( \
      "vzeroall\n\t" \
      "1:\n\t" QUIRE_TWELVE_SUMS(name, reg) "dec %0\n\t" \
      "jnz 1b\n\t" \
      "vzeroupper" \
      : "+r"(count) \
      : \
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
        "xmm12", "xmm13", "xmm14", "xmm15")

void Fma256(int count) {
  QUIRE_RUN_TWELVE("vfmadd231ps", "ymm");
}
void Fma512(int count) {
  QUIRE_RUN_TWELVE("vfmadd231ps", "zmm");
}
void PairsOfBFloat16(int count) {
  QUIRE_RUN_TWELVE("vdpbf16ps", "zmm");
}
void FourBytes(int count) {
  QUIRE_RUN_TWELVE("vpdpbusd", "zmm");
}

#endif

struct Instruction {
  void (*run)(int count) = nullptr;
  double flops = 0;  // Of one instruction.
};

Instruction InstructionFor([[maybe_unused]] cpu::Isa isa, [[maybe_unused]] cpu::WeightFormat format) {
#if defined(__x86_64__)
  const bool rounds_input = format == cpu::WeightFormat::kInt8 || format == cpu::WeightFormat::kInt4;
  const bool is_bfloat16 = format == cpu::WeightFormat::kBFloat16 || format == cpu::WeightFormat::kFp8;
  if (isa == cpu::Isa::kAmx && rounds_input) return {TilesOfBytes, 2.0 * 16 * 16 * 64};
  if (isa == cpu::Isa::kAmx && is_bfloat16) return {TilesOfBFloat16, 2.0 * 16 * 16 * 32};
  if (isa == cpu::Isa::kAvx512Bf16 && is_bfloat16) return {PairsOfBFloat16, 2.0 * 32};
  if (isa >= cpu::Isa::kAvx512Vnni && rounds_input) return {FourBytes, 2.0 * 64};
  if (rounds_input || isa == cpu::Isa::kGeneric) return {};
  if (isa == cpu::Isa::kAvx2) return {Fma256, 2.0 * 8};
  return {Fma512, 2.0 * 16};
#else
  return {};
#endif
}

}  // namespace

RegisterProbe::RegisterProbe(cpu::Isa isa, cpu::WeightFormat format, cpu::ThreadPool* pool) : pool_(pool) {
  const Instruction instruction = InstructionFor(isa, format);
  products_ = instruction.run;
  flops_per_count_ = instruction.flops * kRepeats;
}

double RegisterProbe::MeasureGflops() {
  if (products_ == nullptr) return 0;
  const int num_threads = pool_->num_threads();
  if (count_ == 0) {
    // Finds out how many products take so long.
    constexpr int kFirstCount = 10000;
    const double start = SecondsOf(1);
    products_(kFirstCount);
    count_ = static_cast<int>(kFirstCount * kSeconds / (SecondsOf(1) - start)) + 1;
  }
  Samples rates;
  for (int i = 0; i < kRuns; ++i) {
    const double start = SecondsOf(num_threads);
    std::atomic<int> num_ready = 0;
    pool_->ForEach(num_threads, [&](int, int) {
      // Every thread takes one item.
      ++num_ready;
      while (num_ready < num_threads) {
      }
      products_(count_);
    });
    rates.Add(1e-9 * flops_per_count_ * count_ * num_threads / (SecondsOf(num_threads) - start));
  }
  return rates.Median();
}

}  // namespace quire
