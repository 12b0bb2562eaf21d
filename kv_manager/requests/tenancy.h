#ifndef QUIRE_KV_MANAGER_REQUESTS_TENANCY_H_
#define QUIRE_KV_MANAGER_REQUESTS_TENANCY_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "scheduler/request.h"
#include "security/caller.h"

namespace quire {

// Makes a valid request one of the caller's tenant: its tenant is that one, and its cache salt parts the tenant's own
// prefixes only. A request that names another tenant: PERMISSION_DENIED, and it is unchanged. Without a caller, when no
// tokens are asked for, the request's own word counts.
absl::Status AssumeTenant(const std::optional<Caller>& caller, Request* request);

// The salt that stands for a tenant's: no two pairs of tenant and salt give the same.
std::string TenantSalt(absl::string_view tenant, absl::string_view salt);

// Whose names its requests have; two owners' requests may have equal names.
inline std::string OwnerOf(const std::optional<Caller>& caller) {
  return caller.has_value() ? caller->tenant : "";
}

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_TENANCY_H_
