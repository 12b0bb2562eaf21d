// SPDX-License-Identifier: Apache-2.0

#include "scheduler/tenant_shares.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"

namespace quire {
namespace {

absl::Status CheckShare(const std::string& whose, const TenantShare& share) {
  if (!(share.weight > 0 && share.weight < 1e9)) {
    return absl::InvalidArgumentError(
        absl::StrCat("weight of ", whose, " is ", share.weight, ", it must be above 0 and below 1e9"));
  }
  if (!(share.max_blocks_share > 0 && share.max_blocks_share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("max_blocks_share of ", whose, " is ",
                                                   NumberText(share.max_blocks_share),
                                                   ", it must be above 0 and at most 1"));
  }
  return absl::OkStatus();
}

}  // namespace

const TenantShare& TenantShares::Of(const std::string& tenant) const {
  const auto it = by_tenant.find(tenant);
  return it == by_tenant.end() ? others : it->second;
}

bool TenantShares::LimitBlocks() const {
  return others.max_blocks_share < 1 || std::any_of(by_tenant.begin(), by_tenant.end(), [](const auto& entry) {
           return entry.second.max_blocks_share < 1;
         });
}

int64_t BlocksOfShare(double max_blocks_share, int num_blocks) {
  // 0.07 of 100 blocks is 7, although the product of the doubles could be a little less than 7.
  constexpr double kRounding = 1e-6;
  return std::min<int64_t>(std::max<int64_t>(1, static_cast<int64_t>(max_blocks_share * num_blocks + kRounding)),
                           num_blocks);
}

absl::Status CheckTenantShares(const TenantShares& shares) {
  absl::Status status = CheckShare("other tenants", shares.others);
  for (const auto& [tenant, share] : shares.by_tenant) {
    status.Update(CheckShare(absl::StrCat("tenant \"", tenant, "\""), share));
  }
  return status;
}

}  // namespace quire
