// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_TENANCY_H_
#define QUIRE_KV_MANAGER_REQUESTS_TENANCY_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kv_manager/requests/guide_cache.h"
#include "scheduler/request.h"
#include "security/caller.h"

namespace quire {

// Gives a valid request the caller's tenant, and makes its cache salt one of that tenant, so that tenants never share
// cached prefixes. PERMISSION_DENIED when the request names another tenant; then it is unchanged. Without a caller,
// when callers need no token, the tenant and the salt of the request stay.
absl::Status AssumeTenant(const std::optional<Caller>& caller, Request* request);

// The salt of a tenant's request in the prefix cache. Different pairs of tenant and salt give different results.
std::string TenantSalt(absl::string_view tenant, absl::string_view salt);

// The owner of a caller's requests in the RequestRegistry.
inline std::string OwnerOf(const std::optional<Caller>& caller) {
  return caller.has_value() ? caller->tenant : "";
}

// Returns the sender of a guide in a request with this salt.
GuideUser GuideUserOf(const std::optional<Caller>& caller, absl::string_view salt);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_TENANCY_H_
