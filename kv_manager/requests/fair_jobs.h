// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_FAIR_JOBS_H_
#define QUIRE_KV_MANAGER_REQUESTS_FAIR_JOBS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"

namespace quire {

// Jobs that wait for a thread. Tenants take turns, so that the many jobs of one do not delay the few of another.
// Thread-safe.
class FairJobs {
 public:
  // Adds a job of the tenant, and returns true, unless `max_waiting` jobs wait already. The first waiting job of a
  // tenant always finds room.
  bool TryAdd(const std::string& tenant, std::function<void()> job, size_t max_waiting) {
    const MutexLock lock(&mutex_);
    if (num_waiting_ >= max_waiting && (max_waiting == 0 || by_tenant_.contains(tenant))) return false;
    std::deque<std::function<void()>>& jobs = by_tenant_[tenant];
    if (jobs.empty()) turns_.push_back(tenant);
    jobs.push_back(std::move(job));
    ++num_waiting_;
    return true;
  }

  // Returns the job that has waited longest of those of the tenant whose turn it is. REQUIRES: a job waits.
  std::function<void()> Take() {
    const MutexLock lock(&mutex_);
    const auto tenant = by_tenant_.find(turns_.front());
    std::function<void()> job = std::move(tenant->second.front());
    tenant->second.pop_front();
    if (tenant->second.empty()) {
      by_tenant_.erase(tenant);
    } else {
      turns_.push_back(turns_.front());
    }
    turns_.pop_front();
    --num_waiting_;
    return job;
  }

 private:
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::deque<std::function<void()>>> by_tenant_ QUIRE_GUARDED_BY(mutex_);
  std::deque<std::string> turns_ QUIRE_GUARDED_BY(mutex_);  // Each tenant with waiting jobs once.
  size_t num_waiting_ QUIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_FAIR_JOBS_H_
