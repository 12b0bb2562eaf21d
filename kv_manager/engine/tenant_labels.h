// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_TENANT_LABELS_H_
#define QUIRE_KV_MANAGER_ENGINE_TENANT_LABELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"

namespace quire {

// What the requests of a tenant have used. Every number only grows.
struct TenantUsage {
  int64_t requests = 0;       // Requests that the scheduler accepted.
  int64_t prompt_tokens = 0;  // Prompt tokens of these requests.
  int64_t generated_tokens = 0;
  int64_t refusals = 0;  // Valid requests that were refused, or that left a full queue for others.
};

// Maps tenants to a bounded set of labels: each of the first `max_tenants` tenants has a slot, all later tenants share
// slot 0. A caller that makes up tenant names fills the set, but cannot make it grow. Thread-safe.
class TenantLabels {
 public:
  static constexpr char kOthers[] = "(others)";  // Label of slot 0.
  static constexpr char kNoTenant[] = "(none)";  // Label of requests that name no tenant.

  explicit TenantLabels(int max_tenants) : max_tenants_(max_tenants) {}

  // The slot of the tenant. A tenant that comes for the first time gets a slot of its own while there are free ones.
  int SlotOf(const std::string& tenant) {
    const MutexLock lock(&mutex_);
    const auto it = slots_.find(tenant);
    if (it != slots_.end()) return it->second;
    if (static_cast<int>(slots_.size()) >= max_tenants_) return 0;
    labels_.push_back(tenant.empty() ? kNoTenant : tenant);
    return slots_.emplace(tenant, static_cast<int>(labels_.size()) - 1).first->second;
  }

  // The slot of the tenant, or 0 when it has none. Refused requests take no slots.
  int FindSlot(const std::string& tenant) const {
    const MutexLock lock(&mutex_);
    const auto it = slots_.find(tenant);
    return it == slots_.end() ? 0 : it->second;
  }

  // The labels, by slot.
  std::vector<std::string> labels() const {
    const MutexLock lock(&mutex_);
    return labels_;
  }

 private:
  const int max_tenants_;
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, int> slots_ QUIRE_GUARDED_BY(mutex_);  // Slot 0 is not here.
  std::vector<std::string> labels_ QUIRE_GUARDED_BY(mutex_) = {kOthers};
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_TENANT_LABELS_H_
