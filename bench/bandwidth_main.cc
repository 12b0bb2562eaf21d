// How fast the machine reads memory: the bound of decoding few sequences, whose steps read every weight once.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "absl/flags/flag.h"
#include "base/status.h"
#include "bench/bench_main.h"
#include "bench/samples.h"

ABSL_FLAG(int32_t, threads, 0, "Threads that read; 0: one per core.");
ABSL_FLAG(int32_t, mebibytes, 512, "Memory that all threads together read in a round; far more than the caches hold.");
ABSL_FLAG(int32_t, rounds, 9, "The fastest of these is told.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{"bandwidth",
                                                    "reads memory with all cores and prints GB/s.",
                                                    "[flags]",
                                                    {{"Load:", {"threads", "mebibytes", "rounds"}}}};
  return *flags;
}

std::atomic<uint64_t> sink;

// Several places at once: one stream alone leaves the core waiting for each line. Independent sums, so that the loop
// becomes wide loads.
[[gnu::target_clones("avx512f", "avx2", "default")]] void Read(const uint64_t* data, size_t count) {
  constexpr size_t kStreams = 8;
  constexpr size_t kUnroll = 64;
  const size_t stream = count / kStreams;
  uint64_t sums[kUnroll] = {};
  for (size_t i = 0; i + kUnroll <= stream; i += kUnroll) {
    for (size_t s = 0; s < kStreams; ++s) {
      for (size_t j = 0; j < kUnroll; ++j) sums[j] += data[s * stream + i + j];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  sink += sum;
}

absl::Status Run() {
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("mebibytes", absl::GetFlag(FLAGS_mebibytes), 1, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 10'000));
  const int flag = absl::GetFlag(FLAGS_threads);
  const int num_threads = flag > 0 ? flag : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const size_t bytes = size_t{static_cast<uint32_t>(absl::GetFlag(FLAGS_mebibytes))} << 20;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return absl::ResourceExhaustedError("not enough memory");
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);

  const uint64_t* const data = static_cast<const uint64_t*>(memory);
  const size_t share = bytes / sizeof(uint64_t) / num_threads;
  double best = 0;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    std::atomic<int> num_ready = 0;
    const auto read = [&](int thread) {
      ++num_ready;
      while (num_ready < num_threads) {
      }
      Read(data + thread * share, share);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < num_threads; ++i) others.emplace_back(read, i);
    while (num_ready < num_threads - 1) {
    }
    const double start = WallSeconds();
    read(0);
    for (std::thread& thread : others) thread.join();
    best = std::max(best, 1e-9 * static_cast<double>(share * num_threads * sizeof(uint64_t)) / (WallSeconds() - start));
  }
  munmap(memory, bytes);
  std::printf("%.1f\n", best);
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::BenchMain(quire::Flags(), argc, argv, quire::Run);
}
