// SPDX-License-Identifier: Apache-2.0

// Measures how fast the machine reads memory. This limits the decoding of few sequences, whose steps read every weight
// once.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "absl/flags/flag.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/memory_reader.h"

ABSL_FLAG(int32_t, threads, 0, "Threads that read; 0: one per core.");
ABSL_FLAG(int32_t, mebibytes, 512, "Memory that all threads together read in a round; far more than the caches hold.");
ABSL_FLAG(int32_t, rounds, 9, "Number of measurements; the fastest one is printed.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{"bandwidth",
                                                    "reads memory with all cores and prints GB/s.",
                                                    "[flags]",
                                                    {{"Load:", {"threads", "mebibytes", "rounds"}}}};
  return *flags;
}

absl::Status Run() {
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("mebibytes", absl::GetFlag(FLAGS_mebibytes), 1, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 10'000));
  const size_t bytes = size_t{static_cast<uint32_t>(absl::GetFlag(FLAGS_mebibytes))} << 20;
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<MemoryReader> reader,
                         MemoryReader::Create(absl::GetFlag(FLAGS_threads), bytes));
  double best = 0;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) best = std::max(best, reader->ReadOnce());
  std::printf("%.1f\n", best);
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
