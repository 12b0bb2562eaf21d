// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/tenancy.h"

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {

absl::Status AssumeTenant(const std::optional<Caller>& caller, Request* request) {
  if (!caller.has_value()) return absl::OkStatus();
  if (!request->tenant.empty() && request->tenant != caller->tenant) {
    return WithReason(absl::PermissionDeniedError(absl::StrCat("tenant: is ", Quoted(request->tenant),
                                                               ", the token is one of ", Quoted(caller->tenant))),
                      "NOT_YOUR_TENANT");
  }
  request->tenant = caller->tenant;
  request->cache_salt = TenantSalt(caller->tenant, request->cache_salt);
  return absl::OkStatus();
}

std::string TenantSalt(absl::string_view tenant, absl::string_view salt) {
  return absl::StrCat(tenant.size(), ":", tenant, salt);
}

GuideUser GuideUserOf(const std::optional<Caller>& caller, absl::string_view salt) {
  if (!caller.has_value()) return {.salt = std::string(salt)};
  return {.tenant = caller->tenant, .salt = TenantSalt(caller->tenant, salt)};
}

}  // namespace quire
