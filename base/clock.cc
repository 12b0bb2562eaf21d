// SPDX-License-Identifier: Apache-2.0

#include "base/clock.h"

#include <chrono>

namespace quire {
namespace {

class SteadyClockImpl : public Clock {
 public:
  int64_t NowMicros() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

const Clock& SteadyClock() {
  static const SteadyClockImpl clock;
  return clock;
}

}  // namespace quire
