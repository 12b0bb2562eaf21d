// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_CLOCK_H_
#define QUIRE_BASE_CLOCK_H_

#include <atomic>
#include <cstdint>
#include <limits>

namespace quire {

// Monotonic time in microseconds from an arbitrary start. Thread-safe. Tests replace it by a ManualClock.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowMicros() const = 0;
};

// A time that is never reached.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

constexpr double Seconds(int64_t us) {
  return static_cast<double>(us) * 1e-6;
}

// The process-wide steady clock.
const Clock& SteadyClock();

// A clock for tests. Its time changes only in Advance. Thread-safe.
class ManualClock : public Clock {
 public:
  int64_t NowMicros() const override { return now_us_.load(); }
  void Advance(int64_t us) { now_us_ += us; }

 private:
  std::atomic<int64_t> now_us_{0};
};

}  // namespace quire

#endif  // QUIRE_BASE_CLOCK_H_
