// SPDX-License-Identifier: Apache-2.0

#include "bench/register_probe.h"

#include <atomic>
#include <string>

#include "bench/clocks.h"
#include "client/load/samples.h"

namespace quire {
namespace {

constexpr int kRuns = 5;
constexpr double kSeconds = 0.002;  // Duration of a run.

// Returns the name of the loop whose instruction multiplies such weights, or an empty name.
std::string LoopFor(cpu::Isa isa, cpu::WeightFormat format) {
  const bool rounds_input =
      format == cpu::WeightFormat::kInt8 || format == cpu::WeightFormat::kInt4 || cpu::IsInBlocks(format);
  const bool is_bfloat16 = format == cpu::WeightFormat::kBFloat16 || format == cpu::WeightFormat::kFp8 ||
                           format == cpu::WeightFormat::kInt4BFloat16 || format == cpu::WeightFormat::kInt4Units;
  if (isa == cpu::Isa::kAmx && rounds_input) return "amx_int8";
  if (isa == cpu::Isa::kAmx && is_bfloat16) return "amx_bf16";
  if (isa == cpu::Isa::kAvx512Bf16 && is_bfloat16) return "avx512_bf16";
  if (isa >= cpu::Isa::kAvx512Vnni && rounds_input) return "vnni_int8";
  if (rounds_input || isa == cpu::Isa::kGeneric) return "";
  return isa == cpu::Isa::kAvx2 ? "avx2_fma" : "avx512_fma";
}

}  // namespace

RegisterProbe::RegisterProbe(cpu::Isa isa, cpu::WeightFormat format, cpu::ThreadPool* pool) : pool_(pool) {
  const std::string name = LoopFor(isa, format);
  for (const RegisterLoop& loop : SupportedRegisterLoops()) {
    if (loop.name == name) loop_ = loop;
  }
}

double RegisterProbe::MeasureGflops() {
  if (loop_.run == nullptr) return 0;
  const int num_threads = pool_->num_threads();
  if (count_ == 0) {
    // Finds out how many iterations a run has.
    constexpr int kFirstCount = 10000;
    const double start = SecondsOf(1);
    loop_.run(kFirstCount);
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
      loop_.run(count_);
    });
    rates.Add(1e-9 * loop_.operations * count_ * num_threads / (SecondsOf(num_threads) - start));
  }
  return rates.Median();
}

}  // namespace quire
