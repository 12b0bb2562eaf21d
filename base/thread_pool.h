#ifndef QUIRE_BASE_THREAD_POOL_H_
#define QUIRE_BASE_THREAD_POOL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace quire {

// A fixed number of threads that start jobs in their order of arrival. Use it for work that must delay neither the step
// loop nor gRPC's threads. Thread-safe.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);

  // Waits until all scheduled jobs have run, and the jobs that those schedule.
  ~ThreadPool();

  void Schedule(std::function<void()> job);

  // Schedules the job unless `max_waiting` jobs are already waiting. Returns whether it did.
  bool TrySchedule(std::function<void()> job, size_t max_waiting) QUIRE_EXCLUDES(mutex_);

 private:
  void Run() QUIRE_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar has_work_;
  std::deque<std::function<void()>> jobs_ QUIRE_GUARDED_BY(mutex_);  // The jobs that no thread has started.
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // Constant from the constructor to the destructor.
};

}  // namespace quire

#endif  // QUIRE_BASE_THREAD_POOL_H_
