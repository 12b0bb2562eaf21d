#include "kv_manager/engine/tenant_quotas.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/status_reason.h"

namespace quire {
namespace {

constexpr int64_t kRetryMs = 500;

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
  shares_ = std::move(shares);
}

absl::StatusOr<std::unique_ptr<TenantQuotas::Ticket>> TenantQuotas::Enter(const std::string& tenant) {
  const MutexLock lock(&mutex_);
  const TenantLimits& limits = table_.Of(tenant);
  const auto known = counts_.find(tenant);
  const Counts counts = known == counts_.end() ? Counts() : known->second;
  if (counts.requests >= limits.max_requests) {
    return Refusal(tenant, "max_requests", "waiting or running request", counts.requests, limits.max_requests);
  }
  if (counts.waiting >= limits.max_waiting_requests) {
    return Refusal(tenant, "max_waiting_requests", "waiting request", counts.waiting, limits.max_waiting_requests);
  }
  counts_[tenant] = {counts.requests + 1, counts.waiting + 1};
  return std::make_unique<Ticket>(this, tenant);
}

std::shared_ptr<const TenantShares> TenantQuotas::shares() const {
  const MutexLock lock(&mutex_);
  return shares_;
}

void TenantQuotas::Start(Ticket* ticket) {
  const MutexLock lock(&mutex_);
  if (!std::exchange(ticket->is_waiting_, false)) return;
  --counts_[ticket->tenant_].waiting;
}

void TenantQuotas::Leave(const Ticket& ticket) {
  const MutexLock lock(&mutex_);
  const auto counts = counts_.find(ticket.tenant_);
  counts->second.waiting -= ticket.is_waiting_;
  if (--counts->second.requests == 0) counts_.erase(counts);
}

}  // namespace quire
