#ifndef QUIRE_KV_MANAGER_REQUESTS_JOB_QUEUE_H_
#define QUIRE_KV_MANAGER_REQUESTS_JOB_QUEUE_H_

#include <functional>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace quire {

// Jobs that run one after the other, in the order in which they were added, although several threads add them. The
// queue has no thread of its own: whoever adds the first job lets a thread call Run. Thread-safe.
class JobQueue {
 public:
  // Returns true when no Run is under way or due: then the caller must let some thread call Run once.
  bool Add(std::function<void()> job) {
    const MutexLock lock(&mutex_);
    jobs_.push_back(std::move(job));
    return !std::exchange(is_running_, true);
  }

  // Runs all jobs, including those that they add, until there are none.
  void Run() {
    while (true) {
      std::vector<std::function<void()>> jobs;
      {
        const MutexLock lock(&mutex_);
        jobs.swap(jobs_);
        if (jobs.empty()) is_running_ = false;
      }
      if (jobs.empty()) return;
      for (const std::function<void()>& job : jobs) job();
    }
  }

  // Whether a Run is under way or due. Whoever sees false has also seen the effects of all jobs.
  bool is_running() const {
    const MutexLock lock(&mutex_);
    return is_running_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::function<void()>> jobs_ QUIRE_GUARDED_BY(mutex_);
  bool is_running_ QUIRE_GUARDED_BY(mutex_) = false;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_JOB_QUEUE_H_
