#ifndef QUIRE_KV_MANAGER_ENGINE_TENANT_LABELS_H_
#define QUIRE_KV_MANAGER_ENGINE_TENANT_LABELS_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace quire {

// What a tenant has had. Every number only grows.
struct TenantUsage {
  int64_t requests = 0;       // That the scheduler took.
  int64_t prompt_tokens = 0;  // Of these.
  int64_t generated_tokens = 0;
};

// Tenants as a bounded set of labels: the first `max_tenants` that come have a slot each, all later ones share slot 0.
// So whoever makes up tenants fills the set but does not make it grow. Thread-safe.
class TenantLabels {
 public:
  static constexpr char kOthers[] = "(others)";  // Label of slot 0.
  static constexpr char kNoTenant[] = "(none)";  // Label of requests that name no tenant.

  explicit TenantLabels(int max_tenants) : max_tenants_(max_tenants) {}

  // A slot of its own, as long as there are some.
  int SlotOf(const std::string& tenant) {
    const std::lock_guard lock(mutex_);
    const auto it = slots_.find(tenant);
    if (it != slots_.end()) return it->second;
    if (static_cast<int>(slots_.size()) >= max_tenants_) return 0;
    labels_.push_back(tenant.empty() ? kNoTenant : tenant);
    return slots_.emplace(tenant, static_cast<int>(labels_.size()) - 1).first->second;
  }

  std::vector<std::string> labels() const {  // By slot.
    const std::lock_guard lock(mutex_);
    return labels_;
  }

 private:
  const int max_tenants_;
  mutable std::mutex mutex_;                     // Guards the rest.
  absl::flat_hash_map<std::string, int> slots_;  // Without slot 0.
  std::vector<std::string> labels_ = {kOthers};
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_TENANT_LABELS_H_
