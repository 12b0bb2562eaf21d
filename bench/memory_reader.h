#ifndef QUIRE_BENCH_MEMORY_READER_H_
#define QUIRE_BENCH_MEMORY_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace quire {

// Memory that threads read once, each its share from several places at a time: the bandwidth that a kernel can be held
// against.
class MemoryReader {
 public:
  // `num_threads` 0: one per core. RESOURCE_EXHAUSTED when there is not enough memory.
  static absl::StatusOr<std::unique_ptr<MemoryReader>> Create(int num_threads, size_t bytes);
  ~MemoryReader();

  // Of one pass over all, in GB/s; of CPU time with one thread.
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
