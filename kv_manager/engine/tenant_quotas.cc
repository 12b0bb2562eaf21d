// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/tenant_quotas.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status_reason.h"

namespace quire {
namespace {

constexpr int64_t kRetryMs = 500;
constexpr size_t kMinSweepSize = 64;

absl::Status Refusal(const std::string& tenant, const char* field, const char* what, int value, int limit) {
  const std::string message =
      absl::StrCat("tenant \"", tenant, "\" has ", Counted(value, what), ", the limit is ", limit, " (", field, ")");
  const absl::Status status = WithReason(
      absl::ResourceExhaustedError(message), "TENANT_LIMIT",
      {{"tenant", tenant}, {"field", field}, {"value", absl::StrCat(value)}, {"limit", absl::StrCat(limit)}});
  // Where nothing is allowed, trying again does not help.
  return limit == 0 ? status : WithRetryDelay(status, kRetryMs);
}

}  // namespace

const TenantLimits& TenantTable::Of(const std::string& tenant) const {
  const auto it = by_tenant.find(tenant);
  return it == by_tenant.end() ? others : it->second;
}

TenantShares TenantTable::Shares() const {
  TenantShares shares{.by_tenant = {}, .others = others.share};
  for (const auto& [tenant, limits] : by_tenant) shares.by_tenant[tenant] = limits.share;
  return shares;
}

void TenantQuotas::SetTable(TenantTable table) {
  auto shares = std::make_shared<const TenantShares>(table.Shares());
  const MutexLock lock(&mutex_);
  table_ = std::move(table);
  current_shares_ = shares.get();
  shares_ = std::move(shares);
}

std::shared_ptr<TenantQuotas::Counts> TenantQuotas::CountsOf(const std::string& tenant) {
  if (counts_.size() >= std::max(sweep_size_, kMinSweepSize)) {
    absl::erase_if(counts_, [](const auto& entry) { return entry.second->requests == 0; });
    sweep_size_ = 2 * counts_.size();
  }
  std::shared_ptr<Counts>& counts = counts_[tenant];
  if (counts == nullptr) counts = std::make_shared<Counts>();
  return counts;
}

absl::StatusOr<std::unique_ptr<TenantQuotas::Ticket>> TenantQuotas::Enter(const std::string& tenant) {
  const MutexLock lock(&mutex_);
  const TenantLimits& limits = table_.Of(tenant);
  std::shared_ptr<Counts> counts = CountsOf(tenant);
  if (const int requests = counts->requests; requests >= limits.max_requests) {
    return Refusal(tenant, "max_requests", "waiting or running request", requests, limits.max_requests);
  }
  if (const int waiting = counts->waiting; waiting >= limits.max_waiting_requests) {
    return Refusal(tenant, "max_waiting_requests", "waiting request", waiting, limits.max_waiting_requests);
  }
  return std::make_unique<Ticket>(std::move(counts));
}

std::shared_ptr<const TenantShares> TenantQuotas::shares() const {
  const MutexLock lock(&mutex_);
  return shares_;
}

}  // namespace quire
