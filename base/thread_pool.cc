#include "base/thread_pool.h"

#include <limits>
#include <utility>

namespace quire {

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Schedule(std::function<void()> job) {
  TrySchedule(std::move(job), std::numeric_limits<size_t>::max());
}

bool ThreadPool::TrySchedule(std::function<void()> job, size_t max_waiting) {
  std::lock_guard lock(mutex_);
  if (jobs_.size() >= max_waiting) return false;
  jobs_.push_back(std::move(job));
  has_work_.notify_one();  // Under the lock: once it is free, the job may bring about the end of this pool.
  return true;
}

void ThreadPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return is_stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // What it holds may schedule a job or end a call.
    lock.lock();
  }
}

}  // namespace quire
