// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_FAIR_QUEUE_H_
#define QUIRE_BASE_FAIR_QUEUE_H_

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace quire {

// A queue in which callers take turns: each of them has a queue of its own, and the one whose last turn is the longest
// ago is next. So the many jobs of one caller do not delay the few of another. Not thread-safe.
template <typename Job>
class FairQueue {
 public:
  void Push(const std::string& caller, Job job) {
    std::deque<Job>& jobs = jobs_[caller];
    if (jobs.empty()) turns_.push_back(caller);
    jobs.push_back(std::move(job));
    ++size_;
  }

  // The same, unless the queue has `max_size` jobs already; then it returns false and leaves `job` alone. The first job
  // of a caller finds room all the same, unless `max_size` is 0.
  bool TryPush(const std::string& caller, Job&& job, size_t max_size) {
    if (size_ >= max_size && (max_size == 0 || jobs_.contains(caller))) return false;
    Push(caller, std::move(job));
    return true;
  }

  // The job that Pop returns next. REQUIRES: it is not empty.
  const Job& front() const { return jobs_.at(turns_.front()).front(); }

  // REQUIRES: it is not empty.
  Job Pop() {
    const std::string caller = std::move(turns_.front());
    turns_.pop_front();
    const auto it = jobs_.find(caller);
    Job job = std::move(it->second.front());
    it->second.pop_front();
    --size_;
    if (it->second.empty()) {
      jobs_.erase(it);
    } else {
      turns_.push_back(caller);
    }
    return job;
  }

  bool empty() const { return size_ == 0; }

 private:
  absl::flat_hash_map<std::string, std::deque<Job>> jobs_;  // None of the queues is empty.
  std::deque<std::string> turns_;                           // Each caller in jobs_ once.
  size_t size_ = 0;
};

}  // namespace quire

#endif  // QUIRE_BASE_FAIR_QUEUE_H_
