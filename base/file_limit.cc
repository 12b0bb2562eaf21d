// SPDX-License-Identifier: Apache-2.0

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

}  // namespace quire
