// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_LEADERSHIP_BOOT_CLOCK_H_
#define QUIRE_KV_MANAGER_LEADERSHIP_BOOT_CLOCK_H_

#include "base/clock.h"

namespace quire {

// The time since the machine has booted (CLOCK_BOOTTIME). It also runs while the machine sleeps, and nobody can set it.
// So it measures how old a lease is, whatever happens to the process or to the machine.
const Clock& BootClock();

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_LEADERSHIP_BOOT_CLOCK_H_
