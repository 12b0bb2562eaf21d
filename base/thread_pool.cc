#include "base/thread_pool.h"

#include <limits>
#include <utility>

namespace quire {

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  has_work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Schedule(std::function<void()> job) {
  TrySchedule(std::move(job), std::numeric_limits<size_t>::max());
}

bool ThreadPool::TrySchedule(std::function<void()> job, size_t max_waiting) {
  const MutexLock lock(&mutex_);
  if (jobs_.size() >= max_waiting) return false;
  jobs_.push_back(std::move(job));
  // The notification comes before the mutex is released, because the job may cause the destruction of this pool.
  has_work_.NotifyOne();
  return true;
}

void ThreadPool::Run() {
  const MutexLock lock(&mutex_);
  while (true) {
    while (!is_stopping_ && jobs_.empty()) has_work_.Wait(&mutex_);
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    mutex_.Unlock();
    job();
    job = nullptr;  // Destroying the objects that the job holds may schedule another job or end a call.
    mutex_.Lock();
  }
}

}  // namespace quire
