// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/leadership/boot_clock.h"

#include <ctime>

#include "base/check.h"

namespace quire {
namespace {

class SystemBootClock : public Clock {
 public:
  int64_t NowMicros() const override {
    timespec now;
    QUIRE_CHECK_EQ(clock_gettime(CLOCK_BOOTTIME, &now), 0);
    return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
  }
};

}  // namespace

const Clock& BootClock() {
  static const SystemBootClock clock;
  return clock;
}

}  // namespace quire
