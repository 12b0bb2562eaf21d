// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_WORK_TIME_H_
#define QUIRE_KV_MANAGER_ENGINE_WORK_TIME_H_

#include <cstdint>
#include <ctime>

#include "base/clock.h"

namespace quire {

// Says how long a thread has worked: the time that has passed, and the CPU time that the thread has used in it. On a
// machine with too few cores the first is much longer than the second.
struct WorkTime {
  int64_t elapsed_us = 0;
  int64_t cpu_us = 0;

  // Returns the times of the calling thread. Only differences between two values of one thread have a meaning.
  static WorkTime Now(const Clock& clock) {
    timespec cpu = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    return {.elapsed_us = clock.NowMicros(), .cpu_us = int64_t{cpu.tv_sec} * 1'000'000 + cpu.tv_nsec / 1000};
  }

  WorkTime operator+(const WorkTime& other) const { return {elapsed_us + other.elapsed_us, cpu_us + other.cpu_us}; }
  WorkTime operator-(const WorkTime& other) const { return {elapsed_us - other.elapsed_us, cpu_us - other.cpu_us}; }
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_WORK_TIME_H_
