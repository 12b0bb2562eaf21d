// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LOCK_CHECKS_H_
#define QUIRE_BASE_LOCK_CHECKS_H_

namespace quire {

// Turns off Abseil's search for deadlocks, which is on in Debian's build of Abseil. It takes a global lock whenever a
// mutex is locked or unlocked, and gRPC locks dozens of them for one message. Call this at the start of a program,
// before there are other threads.
void SkipLockChecks();

}  // namespace quire

#endif  // QUIRE_BASE_LOCK_CHECKS_H_
