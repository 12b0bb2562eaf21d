// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_THREAD_POOL_H_
#define QUIRE_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/handoff_queue.h"
#include "base/mutex.h"

namespace quire {

// A fixed number of threads that start jobs in their order of arrival. Use it for work that must delay neither the step
// loop nor gRPC's threads. Whoever schedules a job takes no lock; only the threads of the pool share one. Thread-safe.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);

  // Waits until all scheduled jobs have run, and the jobs that those schedule.
  ~ThreadPool();

  void Schedule(std::function<void()> job);

 private:
  void Run();
  // The job that has waited longest. Returns null when none waits.
  std::function<void()> Next() QUIRE_EXCLUDES(mutex_);

  HandoffQueue<std::function<void()>> arrived_;  // The jobs that no thread of the pool has seen. Taken with the mutex.
  std::atomic<uint32_t> num_pushes_ = 0;         // Changes after every push. Threads without a job wait for that.
  std::atomic<int> num_pushing_ = 0;             // Calls that still use this object.
  std::atomic<bool> is_stopping_ = false;

  Mutex mutex_;                                                      // Guards what the threads of the pool share.
  std::deque<std::function<void()>> jobs_ QUIRE_GUARDED_BY(mutex_);  // Older than the jobs in arrived_.
  std::vector<std::thread> threads_;                                 // Constant from the constructor to the destructor.
};

}  // namespace quire

#endif  // QUIRE_BASE_THREAD_POOL_H_
