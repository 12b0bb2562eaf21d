// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_HEAP_TRIMMER_H_
#define QUIRE_BASE_HEAP_TRIMMER_H_

#include <cstdint>
#include <optional>

namespace quire {

// From now on, every block of at least 128 KiB goes back to the system when it is freed. By default, malloc keeps
// blocks of up to 32 MiB once such a block was freed. Thread-safe.
void GiveLargeBlocksBack();

// Gives the free memory of all threads back to the system. It takes some milliseconds when there is much. Thread-safe.
void GiveFreeHeapBack();

// Gives memory back to the system. malloc keeps what a thread has freed for later allocations of the same threads.
// After large messages on changing threads it keeps such memory several times. Used by one thread.
class HeapTrimmer {
 public:
  explicit HeapTrimmer(int64_t min_bytes) : min_bytes_(min_bytes) {}

  // Gives free memory back if the process is more than `min_bytes` larger than its smallest size after such a call.
  // Otherwise it only reads the size of the process. The first call gives memory back. After an attempt that found
  // little, the next calls do nothing: first one, then twice as many each time, up to kMaxSkipped.
  void TrimIfGrown();

 private:
  static constexpr int kMaxSkipped = 64;

  const int64_t min_bytes_;
  std::optional<int64_t> smallest_;  // Bytes; set by the first call.
  int last_skip_ = 0;                // How many calls were skipped after the last attempt.
  int num_to_skip_ = 0;              // How many of them are still to come.
};

}  // namespace quire

#endif  // QUIRE_BASE_HEAP_TRIMMER_H_
