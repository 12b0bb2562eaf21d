#ifndef QUIRE_BASE_THREAD_POOL_H_
#define QUIRE_BASE_THREAD_POOL_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire {

// A fixed number of threads that run jobs in order of arrival. For work on text, which must hold up neither the step
// loop nor gRPC. Thread-safe.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);

  // Runs what is scheduled, and what those jobs schedule, to the end.
  ~ThreadPool();

  void Schedule(std::function<void()> job);

  // The same unless `max_waiting` jobs wait already. Returns whether the job was scheduled.
  bool TrySchedule(std::function<void()> job, size_t max_waiting);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::function<void()>> jobs_;  // Guarded by mutex_, as all below but threads_.
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire

#endif  // QUIRE_BASE_THREAD_POOL_H_
