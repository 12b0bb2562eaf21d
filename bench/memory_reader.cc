// SPDX-License-Identifier: Apache-2.0

#include "bench/memory_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "bench/clocks.h"

namespace quire {
namespace {

std::atomic<uint64_t> sink;

// Reads from several places at once, because with a single stream the core would wait for each line. The sums are
// independent of each other, so that the compiler uses wide loads.
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

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryReader>> MemoryReader::Create(int num_threads, size_t bytes) {
  if (num_threads == 0) num_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return absl::ResourceExhaustedError("not enough memory");
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  return std::unique_ptr<MemoryReader>(new MemoryReader(num_threads, memory, bytes));
}

MemoryReader::~MemoryReader() {
  munmap(memory_, bytes_);
}

double MemoryReader::ReadOnce() {
  const uint64_t* const data = static_cast<const uint64_t*>(memory_);
  const size_t share = bytes_ / sizeof(uint64_t) / num_threads_;
  std::atomic<int> num_ready = 0;
  const auto read = [&](int thread) {
    ++num_ready;
    while (num_ready < num_threads_) {
    }
    Read(data + thread * share, share);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < num_threads_; ++i) others.emplace_back(read, i);
  while (num_ready < num_threads_ - 1) {
  }
  const double start = SecondsOf(num_threads_);
  read(0);
  for (std::thread& thread : others) thread.join();
  return 1e-9 * static_cast<double>(share * num_threads_ * sizeof(uint64_t)) / (SecondsOf(num_threads_) - start);
}

}  // namespace quire
