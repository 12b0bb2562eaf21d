#include "kv_manager/process/tenant_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/config_file.h"
#include "base/log.h"
#include "base/read_file.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr std::chrono::seconds kPollInterval(1);
constexpr size_t kMaxTenantBytes = 128;
constexpr char kOthers[] = "*";
constexpr char kKeys[] = "weight, max_waiting_requests, max_requests or max_blocks_share";

template <typename Number>
absl::Status CheckRange(const ConfigEntry& entry, bool is_number, Number value, Number min, Number max) {
  if (is_number && value >= min && value <= max) return absl::OkStatus();
  return InvalidArgument(entry.value_at, ": ", entry.key, " is ", entry.values[0], ", it must be a number from ", min,
                         " to ", max);
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
  if (name.size() > kMaxTenantBytes || !std::all_of(name.begin(), name.end(), absl::ascii_isgraph)) {
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

absl::StatusOr<std::unique_ptr<TenantFile>> TenantFile::Open(const std::string& path) {
  std::unique_ptr<TenantFile> file(new TenantFile(path));
  file->version_ = file->ReadVersion();
  QUIRE_ASSIGN_OR_RETURN(file->table_, file->Read());
  return file;
}

TenantFile::~TenantFile() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
    stop_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

TenantFile::Version TenantFile::ReadVersion() const {
  struct stat file = {};
  if (stat(path_.c_str(), &file) != 0) return {};
  return {static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino), file.st_size, file.st_mtim.tv_sec,
          file.st_mtim.tv_nsec};
}

absl::StatusOr<TenantTable> TenantFile::Read() const {
  const absl::StatusOr<std::string> text = ReadFile(path_);
  if (!text.ok()) return InvalidArgument(text.status().message());
  return ParseTenantTable(path_, *text);
}

std::optional<TenantTable> TenantFile::Poll() {
  const Version version = ReadVersion();
  if (version == version_) return std::nullopt;
  absl::StatusOr<TenantTable> table = Read();
  // A file that could not be found is looked for again.
  if (version != Version()) version_ = version;
  const std::string error(table.status().message());
  if (!table.ok() && error != last_error_) {
    QUIRE_LOG(kError) << "--tenants: " << error << "; the limits of the tenants stay as they were";
  }
  last_error_ = error;
  if (!table.ok()) return std::nullopt;
  QUIRE_LOG(kInfo) << "read the limits of " << table->by_tenant.size() << " tenants again from " << path_;
  if (*table == table_) return std::nullopt;
  table_ = *std::move(table);
  return table_;
}

void TenantFile::Watch(std::function<void(TenantTable)> on_change) {
  thread_ = std::thread([this, on_change = std::move(on_change)] { ThreadMain(on_change); });
}

void TenantFile::ThreadMain(const std::function<void(TenantTable)>& on_change) {
  const MutexLock lock(&mutex_);
  while (!is_stopping_) {
    stop_.WaitFor(&mutex_, kPollInterval);
    if (is_stopping_) return;
    if (std::optional<TenantTable> table = Poll(); table.has_value()) on_change(*std::move(table));
  }
}

}  // namespace quire
