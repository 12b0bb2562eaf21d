// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_TENANT_QUOTAS_H_
#define QUIRE_KV_MANAGER_ENGINE_TENANT_QUOTAS_H_

#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "scheduler/tenant_shares.h"

namespace quire {

// Says how much of a manager a tenant may use.
struct TenantLimits {
  static constexpr int kUnlimited = std::numeric_limits<int>::max();

  TenantShare share = {};                 // It holds in each worker.
  int max_waiting_requests = kUnlimited;  // Requests that have not run yet, over all workers.
  int max_requests = kUnlimited;          // Requests that wait or run, over all workers.

  bool operator==(const TenantLimits&) const = default;
};

// The limits of all tenants. A value type.
struct TenantTable {
  std::map<std::string, TenantLimits, std::less<>> by_tenant;
  TenantLimits others = {};  // Each tenant that is not listed has these limits.

  const TenantLimits& Of(const std::string& tenant) const;
  TenantShares Shares() const;

  bool operator==(const TenantTable&) const = default;
};

// Counts the requests of each tenant over all workers of a manager, and refuses those that exceed a limit of their
// tenant. Thread-safe. The shares of blocks and places in queues are not checked here but by the schedulers, which get
// them from shares(). Only calls that count a request or change the table take the lock: step loops take none.
class TenantQuotas {
  struct Counts {
    std::atomic<int> requests = 0;
    std::atomic<int> waiting = 0;
  };

 public:
  // One request in the counts of its tenant, from its construction to its destruction. One thread at a time uses it.
  class Ticket {
   public:
    explicit Ticket(std::shared_ptr<Counts> counts) : counts_(std::move(counts)) {
      ++counts_->requests;
      ++counts_->waiting;
    }
    ~Ticket() {
      OnStarted();
      --counts_->requests;
    }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

    // The request has begun to run. From here on it does not count as waiting, even if it is preempted.
    void OnStarted() {
      if (std::exchange(is_waiting_, false)) --counts_->waiting;
    }

   private:
    const std::shared_ptr<Counts> counts_;
    bool is_waiting_ = true;
  };

  explicit TenantQuotas(TenantTable table = {}) { SetTable(std::move(table)); }

  // Replaces the limits. Requests that are there stay, even if they exceed the new limits.
  void SetTable(TenantTable table) QUIRE_EXCLUDES(mutex_);

  // Counts a request of the tenant. RESOURCE_EXHAUSTED with the reason TENANT_LIMIT, the numbers and a delay for the
  // next attempt when the tenant has reached a limit.
  absl::StatusOr<std::unique_ptr<Ticket>> Enter(const std::string& tenant) QUIRE_EXCLUDES(mutex_);

  // The shares for the schedulers. The pointer changes when the table does. Never null.
  std::shared_ptr<const TenantShares> shares() const QUIRE_EXCLUDES(mutex_);
  // Returns whether shares() would return this pointer. Takes no lock.
  bool has_shares(const std::shared_ptr<const TenantShares>& shares) const { return current_shares_ == shares.get(); }

 private:
  // The counts of a tenant. Forgets tenants without requests when they have become many.
  std::shared_ptr<Counts> CountsOf(const std::string& tenant) QUIRE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  TenantTable table_ QUIRE_GUARDED_BY(mutex_);
  std::shared_ptr<const TenantShares> shares_ QUIRE_GUARDED_BY(mutex_);
  std::atomic<const TenantShares*> current_shares_ = nullptr;  // The pointer in shares_.
  // It has the tenants that have requests or had some. No pointer is null.
  absl::flat_hash_map<std::string, std::shared_ptr<Counts>> counts_ QUIRE_GUARDED_BY(mutex_);
  // When counts_ has this size, it is searched for tenants without requests.
  size_t sweep_size_ QUIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_TENANT_QUOTAS_H_
