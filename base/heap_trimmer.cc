#include "base/heap_trimmer.h"

#include <malloc.h>

#include <algorithm>

#include "base/process_usage.h"

namespace quire {

void HeapTrimmer::TrimIfGrown() {
  if (smallest_.has_value() && ReadProcessUsage().resident_bytes <= *smallest_ + min_bytes_) return;
  const int64_t before = ReadProcessUsage().resident_bytes;
  malloc_trim(0);
  const int64_t bytes = ReadProcessUsage().resident_bytes;
  // What is not given back is in use.
  const bool is_in_use = before - bytes < min_bytes_ / 16;
  smallest_ = is_in_use ? bytes : std::min(smallest_.value_or(bytes), bytes);
}

}  // namespace quire
