// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_MEMORY_READER_H_
#define QUIRE_BENCH_MEMORY_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace quire {

// Measures the memory bandwidth that a kernel can be compared with. Each thread reads its share of a buffer once, from
// several places at a time.
class MemoryReader {
 public:
  // With `num_threads` 0 there is a thread per core. RESOURCE_EXHAUSTED when there is not enough memory.
  static absl::StatusOr<std::unique_ptr<MemoryReader>> Create(int num_threads, size_t bytes);
  ~MemoryReader();

  // Reads everything once and returns the bandwidth in GB/s. With one thread it is measured in CPU time.
  double ReadOnce();

 private:
  MemoryReader(int num_threads, void* memory, size_t bytes)
      : num_threads_(num_threads), memory_(memory), bytes_(bytes) {}

  const int num_threads_;
  void* const memory_;
  const size_t bytes_;
};

}  // namespace quire

#endif  // QUIRE_BENCH_MEMORY_READER_H_
