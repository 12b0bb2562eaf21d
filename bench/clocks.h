// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_CLOCKS_H_
#define QUIRE_BENCH_CLOCKS_H_

namespace quire {

// The CPU time of this thread. Other work on the machine disturbs it less than wall-clock time.
double ThreadCpuSeconds();

// The steady clock.
double WallSeconds();

// The clock for work on `num_threads` threads. A single one works in the calling thread and is measured in CPU time.
inline double SecondsOf(int num_threads) {
  return num_threads == 1 ? ThreadCpuSeconds() : WallSeconds();
}

}  // namespace quire

#endif  // QUIRE_BENCH_CLOCKS_H_
