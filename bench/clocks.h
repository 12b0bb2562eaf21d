#ifndef QUIRE_BENCH_CLOCKS_H_
#define QUIRE_BENCH_CLOCKS_H_

namespace quire {

// CPU time of this thread: other work on the machine disturbs it less than the time on the wall.
double ThreadCpuSeconds();

// The steady clock.
double WallSeconds();

// The clock for what runs on so many threads: CPU time of one, which works in the calling thread.
inline double SecondsOf(int num_threads) {
  return num_threads == 1 ? ThreadCpuSeconds() : WallSeconds();
}

}  // namespace quire

#endif  // QUIRE_BENCH_CLOCKS_H_
