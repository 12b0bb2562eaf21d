// SPDX-License-Identifier: Apache-2.0

#include "base/thread_priority.h"

#include <sys/resource.h>

namespace quire {

// In Linux, 0 is the calling thread, and each thread has a nice value of its own. Nobody is refused a greater value.
void LowerPriorityOfThread() {
  setpriority(PRIO_PROCESS, 0, 10);
}

}  // namespace quire
