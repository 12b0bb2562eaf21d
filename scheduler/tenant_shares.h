// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_TENANT_SHARES_H_
#define QUIRE_SCHEDULER_TENANT_SHARES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace quire {

// What a tenant may use of one scheduler and its pool.
struct TenantShare {
  // Above 0 and below 1e9. While requests of several tenants wait, the fair-share policy gives them tokens in the ratio
  // of their weights, and a full queue has places for them in this ratio.
  double weight = 1;
  // The share of the pool, above 0 and at most 1, that the running requests of the tenant may hold when another one of
  // the tenant enters. Running requests may grow beyond it, but are then the first to be preempted.
  double max_blocks_share = 1;

  bool operator==(const TenantShare&) const = default;
};

// The shares of all tenants. A value type.
struct TenantShares {
  std::map<std::string, TenantShare, std::less<>> by_tenant;
  TenantShare others = {};  // Each tenant that is not listed has this share.

  const TenantShare& Of(const std::string& tenant) const;
  // Returns whether any tenant has a max_blocks_share below 1. Looks at each of them.
  bool LimitBlocks() const;

  bool operator==(const TenantShares&) const = default;
};

// The number of blocks of a pool that a share allows: at least 1, unless the pool has none.
int64_t BlocksOfShare(double max_blocks_share, int num_blocks);

// The error INVALID_ARGUMENT names the tenant, the field and the value that is out of range.
absl::Status CheckTenantShares(const TenantShares& shares);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_TENANT_SHARES_H_
