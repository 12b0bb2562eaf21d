// SPDX-License-Identifier: Apache-2.0

#include "base/thread_priority.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace quire {

// In Linux, 0 is the calling thread, and each thread has a nice value of its own. Every process may raise it.
void LowerPriorityOfThread() {
  static thread_local bool has_been_lowered = false;
  if (std::exchange(has_been_lowered, true)) return;
  setpriority(PRIO_PROCESS, 0, std::min(getpriority(PRIO_PROCESS, 0) + 10, 19));
}

}  // namespace quire
