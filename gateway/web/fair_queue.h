// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_FAIR_QUEUE_H_
#define QUIRE_GATEWAY_WEB_FAIR_QUEUE_H_

#include <deque>
#include <map>
#include <string>
#include <utility>

namespace quire {

// A queue in which callers take turns: each of them has a queue of its own, and the one whose last turn is the longest
// ago is next. Not thread-safe.
template <typename Job>
class FairQueue {
 public:
  void Push(const std::string& caller, Job job) {
    std::deque<Job>& jobs = jobs_[caller];
    if (jobs.empty()) turns_.push_back(caller);
    jobs.push_back(std::move(job));
  }

  // REQUIRES: it is not empty.
  Job Pop() {
    const std::string caller = std::move(turns_.front());
    turns_.pop_front();
    const auto it = jobs_.find(caller);
    Job job = std::move(it->second.front());
    it->second.pop_front();
    if (it->second.empty()) {
      jobs_.erase(it);
    } else {
      turns_.push_back(caller);
    }
    return job;
  }

  bool empty() const { return turns_.empty(); }

 private:
  std::map<std::string, std::deque<Job>> jobs_;  // None of the queues is empty.
  std::deque<std::string> turns_;                // Each caller in jobs_ once.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_FAIR_QUEUE_H_
