#ifndef QUIRE_KV_MANAGER_PROCESS_TENANT_FILE_H_
#define QUIRE_KV_MANAGER_PROCESS_TENANT_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kv_manager/engine/tenant_quotas.h"

namespace quire {

inline constexpr double kMinTenantWeight = 1e-3;
inline constexpr double kMaxTenantWeight = 1e6;

// Reads the limits of tenants from YAML. It is a map from the names of tenants to maps with the keys weight,
// max_waiting_requests, max_requests and max_blocks_share. The tenant "*" stands for all that are not listed. A key
// that a tenant lacks has the value of "*". INVALID_ARGUMENT names the line, the tenant, the key, the value and the
// limit. Errors call the text `name`.
inline constexpr size_t kMaxListedTenants = 4096;
absl::StatusOr<TenantTable> ParseTenantTable(const std::string& name, const std::string& text);

// The limits of tenants in a file. The functions are called on one thread.
class TenantFile {
 public:
  // Returns INVALID_ARGUMENT when the file cannot be read or is wrong.
  static absl::StatusOr<std::unique_ptr<TenantFile>> Open(const std::string& path);
  ~TenantFile();  // Ends the thread.

  const TenantTable& table() const { return table_; }

  // Reads the file again if it has changed, and returns the table if it is another one. When the file is gone or wrong,
  // the table stays as it was and the reason is logged once.
  std::optional<TenantTable> Poll();

  // Starts a thread that calls Poll once a second, and `on_change` with each new table. It is called last: afterwards,
  // only this thread uses the object.
  void Watch(std::function<void(TenantTable)> on_change);

 private:
  // Distinguishes one state of the file from another: device, inode, size, and the time of the last change (seconds and
  // nanoseconds).
  using Version = std::array<int64_t, 5>;

  explicit TenantFile(std::string path) : path_(std::move(path)) {}

  Version ReadVersion() const;
  absl::StatusOr<TenantTable> Read() const;
  void ThreadMain(const std::function<void(TenantTable)>& on_change);

  const std::string path_;
  TenantTable table_;
  Version version_ = {};    // The state of the file that was read last.
  std::string last_error_;  // The error that was logged last. Empty: the last reading succeeded.

  Mutex mutex_;
  CondVar stop_;
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PROCESS_TENANT_FILE_H_
