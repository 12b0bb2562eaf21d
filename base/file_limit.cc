#include "base/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace quire {

void RaiseFileLimit() {
  constexpr rlim_t kMost = 1'000'000;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMost));
  setrlimit(RLIMIT_NOFILE, &limit);
}

int64_t FileLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace quire
