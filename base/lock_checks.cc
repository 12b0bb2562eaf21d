// SPDX-License-Identifier: Apache-2.0

#include "base/lock_checks.h"

#include "absl/synchronization/mutex.h"

namespace quire {

void SkipLockChecks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace quire
