// SPDX-License-Identifier: Apache-2.0

#include "base/heap_trimmer.h"

#include <malloc.h>

#include <algorithm>

#include "base/process_usage.h"

namespace quire {

void GiveLargeBlocksBack() {
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

void GiveFreeHeapBack() {
  malloc_trim(0);
}

void HeapTrimmer::TrimIfGrown() {
  const int64_t before = ReadProcessUsage().resident_bytes;
  if (smallest_.has_value() && before <= *smallest_ + min_bytes_) return;
  if (num_to_skip_ > 0) {
    --num_to_skip_;
    return;
  }
  GiveFreeHeapBack();
  const int64_t bytes = ReadProcessUsage().resident_bytes;
  // The memory is in use when little was given back, so the next attempt can wait.
  const bool was_in_vain = before - bytes < min_bytes_ / 16;
  last_skip_ = was_in_vain ? std::clamp(2 * last_skip_, 1, kMaxSkipped) : 0;
  num_to_skip_ = last_skip_;
  smallest_ = std::min(smallest_.value_or(bytes), bytes);
}

}  // namespace quire
