// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_PROCESS_TENANT_FILE_H_
#define QUIRE_KV_MANAGER_PROCESS_TENANT_FILE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "kv_manager/engine/tenant_quotas.h"

namespace quire {

inline constexpr double kMinTenantWeight = 1e-3;
inline constexpr double kMaxTenantWeight = 1e6;

// Reads the limits of tenants from YAML. It is a map from the names of tenants to maps with the keys weight,
// max_waiting_requests, max_requests and max_blocks_share. The tenant "*" means all that
// are not listed. A key that a tenant lacks has the value of "*". INVALID_ARGUMENT names
// the line, the tenant, the key, the value and the limit. A text without tenants is an
// error. Errors call the text `name`.
inline constexpr size_t kMaxListedTenants = 4096;
absl::StatusOr<TenantTable> ParseTenantTable(const std::string& name, const std::string& text);

// Reads the file of --tenants, as ParseTenantTable does, and calls `on_table`; then again with each new table when the
// file changes, on a thread of its own. Returns INVALID_ARGUMENT when the file cannot be read or is wrong.
absl::StatusOr<std::unique_ptr<WatchedFile>> OpenTenantFile(
    const std::string& path, std::function<void(TenantTable)> on_table,
    std::chrono::milliseconds interval = std::chrono::seconds(1));

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_TENANT_FILE_H_
