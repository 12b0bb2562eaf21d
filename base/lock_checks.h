// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LOCK_CHECKS_H_
#define QUIRE_BASE_LOCK_CHECKS_H_

namespace quire {

// Makes absl::Mutex look for deadlocks no longer. Debian builds Abseil with this search, which takes a global lock
// whenever a mutex is locked or unlocked, and gRPC locks dozens of them for one message. Call it at the start of a
// program, before other threads are there.
void SkipLockChecks();

}  // namespace quire

#endif  // QUIRE_BASE_LOCK_CHECKS_H_
