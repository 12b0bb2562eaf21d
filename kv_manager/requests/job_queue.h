// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_JOB_QUEUE_H_
#define QUIRE_KV_MANAGER_REQUESTS_JOB_QUEUE_H_

#include <functional>
#include <utility>
#include <vector>

#include "base/handoff_queue.h"

namespace quire {

// Jobs that run one after the other, in the order in which they were added, although several threads add them. The
// queue has no thread of its own: whoever adds the first job lets a thread call Run. It has no lock, because step loops
// of different workers add to the same queue. Thread-safe.
class JobQueue {
 public:
  // Returns true when no Run is under way or due: then the caller must let some thread call Run once.
  bool Add(std::function<void()> job) { return jobs_.Push(std::move(job)); }

  // Runs all jobs, including those that they add, until there are none.
  void Run() {
    while (true) {
      const std::vector<std::function<void()>> jobs = jobs_.TakeAll();
      for (const std::function<void()>& job : jobs) job();
      if (jobs.empty() && jobs_.BecomeIdle()) return;
    }
  }

  // Returns whether a Run is under way or due. Whoever sees false has also seen the effects of all jobs.
  bool is_running() const { return !jobs_.is_idle(); }

 private:
  HandoffQueue<std::function<void()>> jobs_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_JOB_QUEUE_H_
