// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/process/tenant_file.h"

#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/config_file.h"
#include "base/number_text.h"
#include "base/status.h"
#include "security/caller.h"

namespace quire {
namespace {

constexpr char kOthers[] = "*";
constexpr char kKeys[] = "weight, max_waiting_requests, max_requests or max_blocks_share";

template <typename Number>
absl::Status CheckRange(const ConfigEntry& entry, bool is_number, Number value, Number min, Number max) {
  if (is_number && value >= min && value <= max) return absl::OkStatus();
  return InvalidArgument(entry.value_at, ": ", entry.key, " is ", entry.values[0], ", it must be a number from ",
                         LimitText(min), " to ", LimitText(max));
}

absl::Status ReadNumber(const ConfigEntry& entry, double min, double max, double* out) {
  const bool is_number = absl::SimpleAtod(entry.values[0], out);
  return CheckRange(entry, is_number, *out, min, max);
}

absl::Status ReadNumber(const ConfigEntry& entry, int min, int* out) {
  const bool is_number = absl::SimpleAtoi(entry.values[0], out);
  return CheckRange(entry, is_number, *out, min, TenantLimits::kUnlimited);
}

absl::Status ReadKey(const ConfigEntry& entry, TenantLimits* limits) {
  if (entry.is_list) return InvalidArgument(entry.value_at, ": ", entry.key, " is a list, it must be one value");
  if (entry.key == "weight") return ReadNumber(entry, kMinTenantWeight, kMaxTenantWeight, &limits->share.weight);
  if (entry.key == "max_waiting_requests") return ReadNumber(entry, 1, &limits->max_waiting_requests);
  if (entry.key == "max_requests") return ReadNumber(entry, 0, &limits->max_requests);
  if (entry.key == "max_blocks_share") return ReadNumber(entry, 1e-6, 1, &limits->share.max_blocks_share);
  return InvalidArgument(entry.key_at, ": unknown key ", absl::CHexEscape(entry.key), ", it must be ", kKeys);
}

absl::Status ReadTenant(const ConfigSection& section, TenantLimits* limits) {
  const std::string& name = section.name;
  if (!IsTenantName(name)) {
    return InvalidArgument(section.name_at, ": a tenant of ", name.size(), " bytes, it must be at most ",
                           kMaxTenantBytes, " visible ASCII characters");
  }
  std::set<std::string> given;
  for (const ConfigEntry& entry : section.entries) {
    const absl::Status status = given.insert(entry.key).second
                                    ? ReadKey(entry, limits)
                                    : InvalidArgument(entry.key_at, ": ", entry.key, " is given twice");
    if (!status.ok()) return InvalidArgument(status.message(), " (tenant \"", name, "\")");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TenantTable> ParseTenantTable(const std::string& name, const std::string& text) {
  if (text.size() > kMaxConfigBytes) return InvalidArgument(name, ": it has more than ", kMaxConfigBytes, " bytes");
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ConfigSection> sections, ParseConfigSections(name, text));
  if (sections.empty()) {
    return InvalidArgument(name, ": it has no tenant, it must have at least one; \"*\": {} sets no limits");
  }
  if (sections.size() > kMaxListedTenants) {
    return InvalidArgument(name, ": it has ", sections.size(), " tenants, the limit is ", kMaxListedTenants);
  }
  TenantTable table;
  for (const ConfigSection& section : sections) {
    if (section.name == kOthers) QUIRE_RETURN_IF_ERROR(ReadTenant(section, &table.others));
  }
  for (const ConfigSection& section : sections) {
    if (section.name == kOthers) continue;
    TenantLimits& limits = table.by_tenant[section.name] = table.others;
    QUIRE_RETURN_IF_ERROR(ReadTenant(section, &limits));
  }
  return table;
}

absl::StatusOr<std::unique_ptr<WatchedFile>> OpenTenantFile(const std::string& path,
                                                            std::function<void(TenantTable)> on_table,
                                                            std::chrono::milliseconds interval) {
  return WatchedFile::Open({.flag = "tenants",
                            .contents = "limits of the tenants",
                            .path = path,
                            .read = [path, on_table = std::move(on_table)](absl::string_view text) -> absl::Status {
                              QUIRE_ASSIGN_OR_RETURN(TenantTable table, ParseTenantTable(path, std::string(text)));
                              on_table(std::move(table));
                              return absl::OkStatus();
                            },
                            .interval = interval});
}

}  // namespace quire
