// SPDX-License-Identifier: Apache-2.0

#include "base/thread_pool.h"

#include <utility>

namespace quire {

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  is_stopping_ = true;
  ++num_pushes_;
  num_pushes_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  // A job may have caused this destruction before the call that scheduled it has returned.
  while (num_pushing_ > 0) std::this_thread::yield();
}

void ThreadPool::Schedule(std::function<void()> job) {
  ++num_pushing_;
  arrived_.Push(std::move(job));
  ++num_pushes_;
  num_pushes_.notify_one();
  --num_pushing_;  // The last use of this object.
}

std::function<void()> ThreadPool::Next() {
  const MutexLock lock(&mutex_);
  if (jobs_.empty()) {
    for (std::function<void()>& job : arrived_.TakeAll()) jobs_.push_back(std::move(job));
  }
  if (jobs_.empty()) return nullptr;
  std::function<void()> job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void ThreadPool::Run() {
  while (true) {
    const uint32_t num_pushes = num_pushes_;
    // Destroying the objects that a job holds may schedule another job or end a call.
    if (std::function<void()> job = Next(); job != nullptr) {
      job();
    } else if (is_stopping_) {
      return;
    } else {
      num_pushes_.wait(num_pushes);
    }
  }
}

}  // namespace quire
