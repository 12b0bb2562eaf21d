#include "base/heap_trimmer.h"

#include <malloc.h>

#include <algorithm>

#include "base/process_usage.h"

namespace quire {

void HeapTrimmer::TrimIfGrown() {
  if (smallest_.has_value() && ReadProcessUsage().resident_bytes <= *smallest_ + min_bytes_) return;
  malloc_trim(0);
  const int64_t bytes = ReadProcessUsage().resident_bytes;
  smallest_ = std::min(smallest_.value_or(bytes), bytes);
}

}  // namespace quire
